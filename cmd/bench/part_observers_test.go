package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

func TestObserversThatAreComparedLetTheProsePass(t *testing.T) {
	t.Parallel()
	list, err := observings()
	if err != nil {
		t.Fatal(err)
	}
	if list[0].name != observersNone || list[0].set != nil {
		t.Errorf("the first is %s", list[0].name)
	}
	for _, o := range list {
		if got, nobody := len(askChunks(o.set, 10, 0)), o.name == observersNone || o.name == observersOther; got != 1 && !nobody || got != 0 && nobody {
			t.Errorf("%s: %d answers were seen", o.name, got)
		}
		attempt := o.set.Begin(stream.Call{Class: stream.ClassMain})
		if attempt == nil {
			continue
		}
		var text, want strings.Builder
		for i := range 100 {
			if p := prosePiece(i); len(p) != pieceBytes || strings.ContainsAny(p, "0123456789") {
				t.Errorf("piece %d is %q", i, p)
			}
			want.WriteString(prosePiece(i))
			for _, c := range attempt.Push(floodChunk(i)).Chunks {
				text.WriteString(c.Text)
			}
		}
		out := attempt.Push(stream.Chunk{Kind: stream.KindFinish, Finish: stream.Finish{Reason: stream.FinishStop}})
		for _, c := range out.Chunks {
			text.WriteString(c.Text)
		}
		if text.String() != want.String() || out.Stop != nil {
			t.Errorf("%s: %+v, %q", o.name, out.Stop, text.String())
		}
		for _, r := range attempt.End(stream.EndFinished) {
			if r.Failure != nil {
				t.Errorf("%s: %s: %+v", o.name, r.Registration.ID, r.Failure)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := newSet([]built{{err: broken}}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestAStopIsTimedFromItsVerdict(t *testing.T) {
	t.Parallel()
	p, err := startTalker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	model, err := openai.New(openai.Config{BaseURL: p.url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	stopped := make(chan time.Time, 1)
	set, err := stoppers(stopped)
	if err != nil {
		t.Fatal(err)
	}
	db := storetest.New(t)
	try := func(cfg stackConfig) (cut, error) {
		cfg.url = db.URL
		s, err := startStack(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}()
		return p.cutOff(t.Context(), s, stopped)
	}
	if at, err := try(stackConfig{model: model, observers: set}); err != nil || at.left <= 0 || at.ended <= 0 {
		t.Errorf("%+v, %v", at, err)
	}
	if _, err := try(stackConfig{model: instantModel{}, observers: set}); err == nil || !strings.Contains(err.Error(), "no observer stopped it") {
		t.Errorf("an answer that ends by itself: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.left(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still read") {
		t.Errorf("nobody leaves: %v", err)
	}
}

// TestObserversDoNotHoldStamps: what they hold of the prose comes later, and what
// is measured does not.
func TestObserversDoNotHoldStamps(t *testing.T) {
	t.Parallel()
	set, err := allObservers()
	if err != nil {
		t.Fatal(err)
	}
	attempt, held := set.Begin(stream.Call{Class: stream.ClassMain}), 0
	for i := range 500 {
		stamp := fmt.Sprintf("%d ", 1_700_000_000_000_000_000+int64(i)*1_234_567_891)
		text := ""
		for _, c := range attempt.Push(stream.Chunk{Lane: stream.LaneText, BlockID: "0", Text: stamp + prosePiece(i)}).Chunks {
			text += c.Text
		}
		if !strings.Contains(text, stamp) {
			t.Errorf("chunk %d: %q of %q", i, text, stamp)
		}
		if !strings.HasSuffix(text, prosePiece(i)) {
			held++
		}
	}
	if held == 0 {
		t.Error("nothing is ever held: what is measured is no redaction")
	}
}
