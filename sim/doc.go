// Package sim runs real engines in a simulated world: processes that can be killed, frozen and restarted, a MongoDB
// model, one virtual clock, and one scheduler that decides who runs next.
//
// A World is single-threaded and shares nothing with other worlds, so a sweep runs one on each core. Given the same
// processes, plan and seed it writes the same journal, byte for byte. Nothing in it reads a clock, starts a
// goroutine that runs beside others, draws from a global source, or iterates a map where order could show.
//
// # How a run goes
//
// Tasks are coroutines (iter.Pull): a task runs alone until it calls the database, sleeps or waits. There it yields, and the
// scheduler resumes the next task: by default the one that has been ready longest, otherwise the one that the
// plan says. When no task is ready the clock jumps to the next timer. Database calls take no virtual time; that a
// call is slow is a scheduling decision like any other, including the decision to let the clock move on while somebody
// is ready.
//
// A call of the database yields twice: before it is applied and before its reply is seen. A crash can therefore
// strike before it, between, or after.
//
// # The replica set
//
// If the plan has faults of a replica set, the database has three members. Commands go to the member that the process takes for the primary, writes wait until a
// majority has them, and reads see only what a majority has: these are the concerns that engine/store/mongostore pins. The journal shows a write when a
// majority has it, in the name of whoever did it. One that is rolled back is never in it, and whoever was told of its success has been told of something
// that did not happen: the properties find that.
package sim
