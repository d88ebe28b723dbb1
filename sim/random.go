package sim

// random is SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): tiny, fast, and the same on
// every machine and with every version of Go.
type random struct{ state uint64 }

// newRandom returns the stream with the number, of a seed.
func newRandom(seed, stream uint64) random {
	r := random{seed}
	r.state = r.next() ^ (stream * 0xD1342543DE82EF95)
	return r
}

func (r *random) next() uint64 {
	r.state += 0x9E3779B97F4A7C15
	z := r.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// below returns a number from 0 to n-1.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }
