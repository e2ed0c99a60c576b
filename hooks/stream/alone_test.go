package stream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// TestAttemptsShareNothing: two runs of one process at once, again and again, each
// with its own text; what one holds never comes out of the other.
func TestAttemptsShareNothing(t *testing.T) {
	t.Parallel()
	counting := stream.Registration{ID: "count", Class: stream.ClassAny, New: func(c stream.Call) stream.Observer {
		held, n := c.Model, 0
		return observer{chunk: func(c stream.Chunk) stream.Verdict {
			n++
			if c.Kind == stream.KindEnd && held != "" {
				next := text(c.BlockID, fmt.Sprintf("%s/%d", held, n))
				held = ""
				return stream.Amend(next)
			}
			if c.Kind != stream.KindDelta {
				return stream.Continue()
			}
			held += c.Text
			return stream.Hold()
		}}
	}}
	emitting := saying("emit", func(c stream.Chunk) stream.Verdict {
		envelope, _ := json.Marshal(c.Text) // a text always encodes
		return stream.Emit("said", envelope)
	})
	s := set(t, counting, emitting)
	for range 1000 {
		var both sync.WaitGroup
		for _, who := range []string{"a", "b"} {
			both.Go(func() {
				a := s.Begin(stream.Call{Model: who})
				got := pushed(a, text("1", who), text("1", who), text("1", who))
				out := a.Push(finish())
				got = append(got, shown(out.Chunks), string(out.Emissions[0].Envelope))
				reports := a.End(stream.EndFinished)
				said := who + who + who + who + "/4"
				expect(t, got, "1=", "1=", "1=", "1="+said+" | stop", `"`+said+`"`)
				if reports[0].Held != 3 || reports[1].Emitted != 6 {
					t.Errorf("reports %+v", reports)
				}
			})
		}
		both.Wait()
	}
}

// wild is an observer that follows a script, whatever it is asked about, and
// writes down what it was asked and said.
type wild struct {
	script []byte
	n      int
	held   map[string]string
	log    *[]string
	id     string
}

func (w *wild) OnEnd(s stream.Summary) { w.note("end", s) }

func (w *wild) note(what string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	*w.log = append(*w.log, w.id+" "+what+" "+string(text))
}

func (w *wild) OnChunk(c stream.Chunk) stream.Verdict {
	w.note("sees", c)
	v := w.verdict(c)
	w.note("says", v)
	return v
}

func (w *wild) verdict(c stream.Chunk) stream.Verdict {
	step := w.script[w.n%len(w.script)]
	w.n++
	key := string(c.Lane) + "/" + c.BlockID
	held := w.held[key]
	next := c
	switch {
	case c.Kind == stream.KindEnd && held != "":
		delete(w.held, key)
		return stream.Amend(stream.Chunk{Kind: stream.KindDelta, Lane: c.Lane, BlockID: c.BlockID, Text: held})
	case c.Kind == stream.KindEnd || c.Kind == stream.KindFinish:
		return stream.Continue()
	case step < 60 && held != "":
		delete(w.held, key)
		next.Text = held + c.Text
		return stream.Amend(next)
	case step < 100:
		w.held[key] += c.Text
		return stream.Hold()
	case held != "":
		w.held[key] += c.Text
		return stream.Hold()
	case step < 120:
		next.Text = strings.ReplaceAll(c.Text, "e", "E")
		return stream.Amend(next)
	case step < 140:
		return stream.Emit("wild", json.RawMessage(fmt.Sprintf(`{"n":%d}`, w.n)))
	case step < 150:
		return stream.Throttle(time.Duration(step) * time.Millisecond)
	case step == 150:
		return stream.Stop("enough")
	case step == 151:
		panic(c.Text)
	case step == 152:
		return stream.Verdict{Action: "strange"}
	case step < 156 && c.Kind == stream.KindDelta && c.Lane == stream.LaneText:
		return stream.Amend(stream.Chunk{Kind: stream.KindToolCall, BlockID: fmt.Sprint("c", w.n), Text: c.Text, Call: stream.CallStart{Name: "look"}})
	}
	return stream.Continue()
}

// TestTheSameChunksGetTheSameVerdicts: byte by byte, and the same goes on.
func TestTheSameChunksGetTheSameVerdicts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scripts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 20), 1, 4).Draw(t, "scripts")
		policies := rapid.SliceOfN(rapid.Bool(), len(scripts), len(scripts)).Draw(t, "stops")
		pieces := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 20).Draw(t, "pieces")
		var chunks []stream.Chunk
		for i, p := range pieces {
			c := []stream.Chunk{
				text("1", "some text"), text("2", ""), reasoning("1", "thought"), reasoning("3", "ü"[:1]), toolCall(fmt.Sprint("t", i), "look"), arguments("4", "{}"),
			}[p]
			chunks = append(chunks, at(time.Duration(i)*time.Millisecond, c))
		}
		if rapid.Bool().Draw(t, "finished") {
			chunks = append(chunks, finish())
		}
		once := play(t, scripts, policies, chunks)
		if again := play(t, scripts, policies, chunks); !slices.Equal(once, again) {
			t.Fatalf("once:\n%s\nand again:\n%s", strings.Join(once, "\n"), strings.Join(again, "\n"))
		}
	})
}

// play is all that is seen and said, and all that goes on. What is true of every
// attempt is checked along the way.
func play(t *rapid.T, scripts [][]byte, stops []bool, chunks []stream.Chunk) []string {
	var log []string
	var regs []stream.Registration
	for i, s := range scripts {
		id := fmt.Sprint("w", i)
		r := stream.Registration{ID: id, New: func(stream.Call) stream.Observer {
			return &wild{script: s, held: map[string]string{}, log: &log, id: id}
		}}
		if stops[i] {
			r.OnFailure = stream.FailStop
		}
		regs = append(regs, r)
	}
	s, err := stream.NewSet(regs...)
	if err != nil {
		t.Fatal(err)
	}
	a := s.WithClock(still).Begin(stream.Call{})
	in, out, accepted := 0, 0, 0
	var stopped *stream.Stopped
	for _, c := range chunks {
		o := a.Push(c)
		in += len(c.Text)
		text, _ := json.Marshal(o)
		log = append(log, "goes on "+string(text))
		for _, c := range o.Chunks {
			out += len(c.Text)
			if c.Kind == stream.KindEnd {
				t.Fatal("the end of a block has left the chain")
			}
		}
		if stopped = o.Stop; stopped != nil {
			if len(o.Chunks)+len(o.Emissions) > 0 || stopped.Accepted != accepted {
				t.Fatalf("stopped with %+v; %d bytes had gone on", o, accepted)
			}
			break
		}
		accepted = out
	}
	// Scripts neither lose nor invent text, so all of it has gone on by the finish.
	if n := len(chunks); stopped == nil && n > 0 && chunks[n-1].Kind == stream.KindFinish && in != out {
		t.Fatalf("%d bytes have come and %d gone on:\n%s", in, out, strings.Join(log, "\n"))
	}
	reports, _ := json.Marshal(a.End(stream.EndFinished)[0].Lanes)
	return append(log, string(reports))
}

func TestContinueCostsNoAllocation(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts for the whole process
	a := begin(t, saying("one", nil), saying("two", nil), saying("three", nil), saying("four", nil))
	c := text("1", "some text")
	a.Push(c)
	if n := testing.AllocsPerRun(1000, func() { a.Push(c) }); n != 0 {
		t.Errorf("%v allocations for a chunk", n)
	}
}

func BenchmarkPush(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprint("observers=", n), func(b *testing.B) {
			var regs []stream.Registration
			for i := range n {
				r := saying(fmt.Sprint("o", i), nil)
				r.ChunkTime, r.AttemptTime = -1, -1
				regs = append(regs, r)
			}
			s, err := stream.NewSet(regs...)
			if err != nil {
				b.Fatal(err)
			}
			a, c := s.Begin(stream.Call{}), text("1", "some text")
			b.ReportAllocs()
			for b.Loop() {
				a.Push(c)
			}
		})
	}
	b.Run("observers=0", func(b *testing.B) {
		s, err := stream.NewSet()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			s.Begin(stream.Call{})
		}
	})
}
