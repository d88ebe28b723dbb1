package redisport

// Script is a Lua script. Its name is what a model knows it by.
type Script struct {
	Name   string
	Source string
}

// Version is the format of the records that these scripts write. Records of another version are left alone.
const Version = "1"

// A claim's record is a hash: v format, s state (P pending, C completed, X tombstone), t token, n fence, u end of the lease in
// milliseconds, f fingerprint, k kind of result, r payload, p pinned, a "the key was claimed before" (of a tombstone).
//
// Replies begin with a word. "version" is the answer of every script to a record that it does not understand.
const prelude = `
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local ms = math.floor(us / 1000)
local function text(number) return string.format('%.0f', number) end
local function keep(span)
  local left = redis.call('PTTL', KEYS[1])
  if left < span then redis.call('PEXPIRE', KEYS[1], text(span)) end
end
`

const recordPrelude = prelude + `
local r = redis.call('HMGET', KEYS[1], 'v', 's', 't', 'n', 'u', 'f', 'k', 'r', 'p', 'a')
local version, state, token, fence, lease_until, print = r[1], r[2], r[3], tonumber(r[4] or 0), tonumber(r[5] or 0), r[6]
if version and version ~= '` + Version + `' then return {'version', version} end
`

// The scripts. Args are named in the first line of each.
var (
	// Claim answers {state, fence, lease left in ms, fingerprint, kind, payload}.
	Claim = &Script{"claim", recordPrelude + `
local mine, lease, ttl, wanted, pin = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local function take(word, n)
  redis.call('HSET', KEYS[1], 'v', '` + Version + `', 's', 'P', 't', mine, 'n', text(n), 'u', text(ms + lease), 'f', wanted, 'p', pin)
  redis.call('PEXPIRE', KEYS[1], text(math.max(ttl, lease)))
  return {word, text(n), '0', '', '', ''}
end
local function label(p) return string.match(p, '^[^:]*') end
local function differs()
  return print ~= '' and wanted ~= '' and print ~= wanted and string.sub(print, 1, 1) ~= 'r' and label(print) == label(wanted)
end
if not state then return take('claimed', us) end
if state == 'X' then return {'tombstoned', '0', '0', '', '', ''} end
if state == 'C' then
  if differs() then return {'mismatch', '0', '0', '', '', ''} end
  return {'replay', '0', '0', print, r[7], r[8]}
end
if token == mine then return take('claimed', fence) end
if differs() then return {'mismatch', '0', '0', '', '', ''} end
if lease_until > ms then return {'in flight', '0', text(lease_until - ms), print, '', ''} end
if r[9] == '1' or pin == '1' then return {'pinned', '0', '0', '', '', ''} end
return take('takeover', math.max(fence + 1, us))
`}

	// Extend answers {"held"} or {"lost"}.
	Extend = &Script{"extend", recordPrelude + `
local mine, lease = ARGV[1], tonumber(ARGV[2])
if state ~= 'P' or token ~= mine then return {'lost'} end
redis.call('HSET', KEYS[1], 'u', text(ms + lease))
keep(lease)
return {'held'}
`}

	// Complete answers {"held"} or {"lost"}.
	Complete = &Script{"complete", recordPrelude + `
local mine, given, kind, payload, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if (state ~= 'P' and state ~= 'C') or token ~= mine then return {'lost'} end
if state == 'C' then return {'held'} end
if given == '' then given = print end
redis.call('HSET', KEYS[1], 's', 'C', 'f', given, 'k', kind, 'r', payload)
redis.call('HDEL', KEYS[1], 'u')
redis.call('PEXPIRE', KEYS[1], ttl)
return {'held'}
`}

	// Release answers {"held"} or {"lost"}; a free key is no loss.
	Release = &Script{"release", recordPrelude + `
if not state then return {'held'} end
if state ~= 'P' or token ~= ARGV[1] then return {'lost'} end
redis.call('DEL', KEYS[1])
return {'held'}
`}

	// Tombstone answers {"in flight", lease left in ms}, {"ran"} or {"never"}.
	Tombstone = &Script{"tombstone", recordPrelude + `
local ttl = ARGV[1]
if state == 'P' and lease_until > ms then return {'in flight', text(lease_until - ms)} end
local ran = '0'
if state == 'P' or state == 'C' or r[10] == '1' then ran = '1' end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'v', '` + Version + `', 's', 'X', 'n', text(fence), 'a', ran)
redis.call('PEXPIRE', KEYS[1], ttl)
if ran == '1' then return {'ran'} end
return {'never'}
`}

	// Sweep answers {"released"} or {"kept"}. Looking and deleting are one step, so no owner can come in between.
	Sweep = &Script{"sweep", recordPrelude + `
if state ~= 'P' or r[9] == '1' or lease_until > ms then return {'kept'} end
redis.call('DEL', KEYS[1])
return {'released'}
`}

	// Lease acquires, renews or releases a lease that one holder has at a time, and answers {"held" or "lost", left in ms, fence,
	// cursor}. Its hash has t token, u end, n fence, c cursor.
	Lease = &Script{"lease", prelude + `
local verb, mine, ttl, save, cursor, memory = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
local r = redis.call('HMGET', KEYS[1], 't', 'u', 'n', 'c')
local token, ends, fence, saved = r[1], tonumber(r[2] or 0), tonumber(r[3] or 0), r[4] or ''
local function answer(word, left) return {word, text(left), text(fence), saved} end
if verb == 'acquire' then
  if ends > ms and token ~= mine then return answer('lost', ends - ms) end
  if ends <= ms or token ~= mine then fence = math.max(fence + 1, us) end
else
  if not token or token ~= mine then return answer('lost', 0) end
  if save == '1' then saved = cursor end
end
if verb == 'release' then
  redis.call('HDEL', KEYS[1], 't', 'u')
  redis.call('HSET', KEYS[1], 'n', text(fence), 'c', saved)
else
  redis.call('HSET', KEYS[1], 't', mine, 'u', text(ms + ttl), 'n', text(fence), 'c', saved)
end
redis.call('PEXPIRE', KEYS[1], text(math.max(memory, ttl)))
return answer('held', ttl)
`}
)

// Scripts lists them all.
var Scripts = []*Script{Claim, Extend, Complete, Release, Tombstone, Sweep, Lease}
