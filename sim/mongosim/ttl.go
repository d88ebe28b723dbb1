package mongosim

import (
	"encoding/binary"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ExpireTTL is one pass of the TTL monitor at the given time of the server's clock: it deletes every document with
// an expired date in a TTL index, and returns how many. Other types than dates do not expire; of an array the earliest date
// counts. Source: manual, "TTL Indexes".
func (s *Server) ExpireTTL(now time.Time) int {
	s.now = now
	deleted := 0
	if s.role != primary {
		return 0 // a secondary deletes what the primary has deleted
	}
	for _, d := range s.catalog.databases {
		for _, c := range d.collections {
			for _, x := range c.indexes {
				for _, r := range x.expired(bson.NewDateTimeFromTime(now)) {
					if s.remove(c, r, true) == nil {
						deleted++
					}
				}
			}
		}
	}
	return deleted
}

// NextExpiry returns the earliest time at which a pass would delete something. ok is false if there is none.
func (s *Server) NextExpiry() (next time.Time, ok bool) {
	var earliest bson.DateTime
	for _, d := range s.catalog.databases {
		for _, c := range d.collections {
			for _, x := range c.indexes {
				if date, dated := x.nextExpiry(); dated && (!ok || date < earliest) {
					earliest, ok = date, true
				}
			}
		}
	}
	return earliest.Time(), ok
}

// expired returns the records that the index lets expire at the time, each once.
func (x *index) expired(now bson.DateTime) []*record {
	if x.ExpireAfterSeconds == nil {
		return nil
	}
	latest := now - bson.DateTime(*x.ExpireAfterSeconds)*1000
	in := rangeOf(opLte, latest, string([]byte{byte(classDate)}), "").interval("", x.fields[0].descending)
	var records []*record
	seen := map[*record]bool{}
	for p := x.entries.seek(in.start); ; p = x.entries.next(p) {
		e, ok := x.entries.at(p)
		if !ok || e.key >= in.end {
			return records
		}
		if x.multikey {
			if seen[e.record] {
				continue
			}
			seen[e.record] = true
		}
		records = append(records, e.record)
	}
}

func (x *index) nextExpiry() (bson.DateTime, bool) {
	if x.ExpireAfterSeconds == nil {
		return 0, false
	}
	var e entry
	var ok bool
	if x.fields[0].descending {
		e, ok = x.entries.at(x.entries.previous(x.entries.seek(directed(string([]byte{byte(classDate)}), true) + above)))
	} else {
		e, ok = x.entries.at(x.entries.seek(string([]byte{byte(classDate)})))
	}
	if !ok {
		return 0, false
	}
	key := directed(e.key, x.fields[0].descending)
	if class(key[0]) != classDate {
		return 0, false
	}
	date := bson.DateTime(binary.BigEndian.Uint64([]byte(key[1:9])) ^ 1<<63)
	return date + bson.DateTime(*x.ExpireAfterSeconds)*1000, true
}
