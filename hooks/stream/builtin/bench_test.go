package builtin_test

import (
	"fmt"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
)

const ordinary = "The station in Oslo reports rain from the west for tomorrow, with some wind in the afternoon. You may want to take an umbrella, " +
	"and if you go by train, leave a little earlier than usual. I have looked up the forecast for the evening too: it clears after sunset. "

// BenchmarkChunk is a piece of 20 bytes in which nothing is found. With many
// attempts in rotation, as with many runs at once, what one needs is no longer near
// when it is asked again.
func BenchmarkChunk(b *testing.B) {
	redact := func() (stream.Registration, error) {
		return builtin.Redact(builtin.RedactConfig{Patterns: []string{pattern.SetSecrets}})
	}
	halt := func() (stream.Registration, error) { return builtin.HaltOnPattern(builtin.HaltOnPatternConfig{}) }
	metrics := func() (stream.Registration, error) { return builtin.Metrics(builtin.MetricsConfig{}) }
	dialect := func() (stream.Registration, error) {
		return builtin.NormalizeToolDialect(builtin.NormalizeToolDialectConfig{})
	}
	personal := func() (stream.Registration, error) {
		return builtin.Redact(builtin.RedactConfig{Patterns: []string{pattern.SetPersonal}})
	}
	for _, c := range []struct {
		name string
		made []func() (stream.Registration, error)
	}{
		{"redact", []func() (stream.Registration, error){redact}}, {"personal", []func() (stream.Registration, error){personal}},
		{"halt", []func() (stream.Registration, error){halt}},
		{"dialect", []func() (stream.Registration, error){dialect}}, {"metrics", []func() (stream.Registration, error){metrics}},
		{"four", []func() (stream.Registration, error){dialect, redact, halt, metrics}},
	} {
		var regs []stream.Registration
		for _, f := range c.made {
			r, err := f()
			if err != nil {
				b.Fatal(err)
			}
			r.AttemptTime = -1
			regs = append(regs, r)
		}
		set, err := stream.NewSet(regs...)
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{1, 256, 4096} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) { benchAttempts(b, set, n) })
		}
	}
}

func benchAttempts(b *testing.B, set *stream.Set, n int) {
	attempts := make([]*stream.Attempt, n)
	for i := range attempts {
		attempts[i] = set.Begin(stream.Call{})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		from := (i/n*20 + i%n*7) % (len(ordinary) - 20)
		out := attempts[i%n].Push(stream.Chunk{Kind: stream.KindDelta, Lane: stream.LaneText, BlockID: "0", Text: ordinary[from : from+20]})
		if out.Stop != nil || len(out.Chunks) != 1 {
			b.Fatalf("%+v", out)
		}
		i++
	}
}
