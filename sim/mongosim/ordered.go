package mongosim

import "slices"

// ordered is a sorted sequence of index entries: a row of sorted blocks. For the few documents of a
// simulated world it is one sorted slice; with a million entries an insertion still moves little.
type ordered struct {
	blocks [][]entry
	size   int
}

// entry is one key of one document. Entries with equal keys are ordered by their records.
type entry struct {
	key    string
	record *record
}

const blockSize = 256

func (e entry) less(o entry) bool {
	if e.key != o.key {
		return e.key < o.key
	}
	return e.record.before(o.record)
}

// place is a position in the sequence; the end has a block after the last.
type place struct{ block, index int }

// seek returns the place of the first entry whose key is not below the given one.
func (s *ordered) seek(key string) place {
	return s.search(func(e entry) bool { return e.key < key })
}

// search returns the place of the first entry that is not below.
func (s *ordered) search(below func(entry) bool) place {
	lo, hi := 0, len(s.blocks)
	for lo < hi {
		mid := (lo + hi) / 2
		block := s.blocks[mid]
		if below(block[len(block)-1]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(s.blocks) {
		return place{lo, 0}
	}
	block := s.blocks[lo]
	i, j := 0, len(block)
	for i < j {
		mid := (i + j) / 2
		if below(block[mid]) {
			i = mid + 1
		} else {
			j = mid
		}
	}
	return place{lo, i}
}

func (s *ordered) at(p place) (entry, bool) {
	if p.block < 0 || p.block >= len(s.blocks) {
		return entry{}, false
	}
	return s.blocks[p.block][p.index], true
}

func (s *ordered) next(p place) place {
	if p.index+1 < len(s.blocks[p.block]) {
		return place{p.block, p.index + 1}
	}
	return place{p.block + 1, 0}
}

func (s *ordered) previous(p place) place {
	if p.index > 0 {
		return place{p.block, p.index - 1}
	}
	if p.block == 0 {
		return place{-1, 0}
	}
	return place{p.block - 1, len(s.blocks[p.block-1]) - 1}
}

func (s *ordered) insert(e entry) {
	s.size++
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, append(make([]entry, 0, 8), e))
		return
	}
	p := s.search(func(o entry) bool { return o.less(e) })
	if p.block == len(s.blocks) {
		p = place{p.block - 1, len(s.blocks[p.block-1])}
	}
	block := slices.Insert(s.blocks[p.block], p.index, e)
	s.blocks[p.block] = block
	if len(block) > blockSize {
		half := len(block) / 2
		if p.index == len(block)-1 {
			half = len(block) - 1 // keys that only grow leave full blocks behind
		}
		right := append(make([]entry, 0, blockSize+1), block[half:]...)
		clear(block[half:])
		s.blocks[p.block] = block[:half]
		s.blocks = slices.Insert(s.blocks, p.block+1, right)
	}
}

// move puts one entry in the place of another. Often that is the same place, as for a counter at the end of a compound key.
func (s *ordered) move(from, to entry) {
	p := s.search(func(o entry) bool { return o.less(from) })
	found, ok := s.at(p)
	if !ok || found != from {
		panic("mongosim: an index lost an entry")
	}
	before, hasBefore := s.at(s.previous(p))
	after, hasAfter := s.at(s.next(p))
	if (!hasBefore || before.less(to)) && (!hasAfter || to.less(after)) {
		s.blocks[p.block][p.index] = to
		return
	}
	s.remove(from)
	s.insert(to)
}

func (s *ordered) remove(e entry) {
	p := s.search(func(o entry) bool { return o.less(e) })
	found, ok := s.at(p)
	if !ok || found != e {
		panic("mongosim: an index lost an entry")
	}
	s.size--
	s.blocks[p.block] = slices.Delete(s.blocks[p.block], p.index, p.index+1)
	if len(s.blocks[p.block]) == 0 {
		s.blocks = slices.Delete(s.blocks, p.block, p.block+1)
	}
}
