package sim

import "math/rand/v2"

// source makes every choice of a schedule. What it chose can be played again,
// and where a list of choices is at its end everything is the simplest: 0.
type source struct {
	rng    *rand.Rand // nil plays list
	list   []uint32
	chosen []uint32
}

func seeded(seed uint64) *source { return &source{rng: rand.New(rand.NewPCG(seed, 0))} }

func played(list []uint32) *source { return &source{list: list} }

// draw returns a number below n, of which 0 is the simplest.
func (s *source) draw(n int) int {
	v := uint32(0)
	switch at := len(s.chosen); {
	case s.rng != nil:
		v = s.rng.Uint32N(uint32(n))
	case at < len(s.list):
		v = s.list[at] % uint32(n)
	}
	s.chosen = append(s.chosen, v)
	return int(v)
}

// rarely is true in that many of a hundred cases.
func (s *source) rarely(percent int) bool { return s.draw(100) >= 100-percent }

// oneOf returns a number below len(weights), each as often as its weight says.
func (s *source) oneOf(weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	v := s.draw(sum)
	for i, w := range weights {
		if v < w {
			return i
		}
		v -= w
	}
	return 0
}
