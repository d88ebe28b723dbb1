// What node_test.go has Node's official driver do: node client.js URI STEP [JSON]. Each step is a process, and so a client, of its own; it
// prints its result as one line of JSON.
import { MongoClient } from 'mongodb'
import { EJSON } from 'bson'

const [uri, step, input] = process.argv.slice(2)
const argument = input ? EJSON.parse(input) : undefined
const client = new MongoClient(uri, { serverSelectionTimeoutMS: 10_000 })
const db = client.db('node')
const events = db.collection('events')

const steps = {
  // creates indexes, and answers what the server lists
  async indexes() {
    const listed = {}
    for (const { collection, indexes } of argument) {
      await db.collection(collection).createIndexes(indexes)
      listed[collection] = await db.collection(collection).indexes()
    }
    return listed
  },

  // watches, inserts two, and answers the token after the first
  async watch() {
    const stream = events.watch([{ $match: { operationType: 'insert' } }])
    const first = stream.next()
    await new Promise((opened) => stream.once('init', opened).once('resumeTokenChanged', opened))
    await events.insertMany([{ _id: 1 }, { _id: 2 }])
    const { _id: token, documentKey } = await first
    await stream.close()
    return { token, key: documentKey._id }
  },

  // goes on after a token, with as many events as asked for
  async resume() {
    const stream = events.watch([], { resumeAfter: argument.token })
    const keys = []
    for (let i = 0; i < argument.count; i++) {
      if (i === argument.insertAt) await events.insertOne({ _id: 3 })
      keys.push((await stream.next()).documentKey._id)
    }
    await stream.close()
    return { keys }
  },

  // two writes in a transaction, and two in one that is given up
  async transaction() {
    const accounts = db.collection('accounts')
    await client.withSession((session) => session.withTransaction(async () => {
      await accounts.insertOne({ _id: 'a' }, { session })
      await accounts.updateOne({ _id: 'b' }, { $inc: { n: 1 } }, { session, upsert: true })
    }))
    await client.withSession((session) => session.withTransaction(async () => {
      await accounts.deleteMany({}, { session })
      throw new Error('give up')
    })).catch((error) => { if (error.message !== 'give up') throw error })
    return await accounts.find().sort({ _id: 1 }).toArray()
  },
}

try {
  await client.connect()
  console.log(EJSON.stringify(await steps[step](), { relaxed: true }))
} finally {
  await client.close()
}
