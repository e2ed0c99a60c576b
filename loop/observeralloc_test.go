package loop_test

import (
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// TestChunksCostNoAllocationForTheirObservers: not where there are none, not where
// they observe other calls, and not where they let everything pass. What is left
// are the buffers of the text, which grow with the logarithm of its length.
func TestChunksCostNoAllocationForTheirObservers(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	titles := looptest.Watches("titles", nil)
	titles.Class = stream.ClassTitle
	idle := looptest.Watches("idle", func() looptest.Observer {
		return func(stream.Chunk) stream.Verdict { return stream.Continue() }
	})
	for name, regs := range map[string][]stream.Registration{"none": nil, "of other calls": {titles}, "that let it pass": {idle}} {
		var set *stream.Set
		if regs != nil {
			var err error
			if set, err = stream.NewSet(regs...); err != nil {
				t.Fatal(err)
			}
		}
		few := testing.AllocsPerRun(5, func() { loop.ReadObserved(set, 1_000) })
		many := testing.AllocsPerRun(5, func() { loop.ReadObserved(set, 32_000) })
		if perChunk := (many - few) / 31_000; perChunk > 0.005 {
			t.Errorf("%s: %.4f allocations per chunk; %.0f for 1,000 chunks, %.0f for 32,000", name, perChunk, few, many)
		}
	}
}
