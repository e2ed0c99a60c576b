package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/hooks/stream/builtin"
	"github.com/seed-2ca4966b/agentd/loop/model/openai"
)

const (
	stoppedAnswer = "an answer that is stopped"
	leftAfter     = "connection closed after"
	endedAfter    = "run ended after"

	// talkEvery is the time between two pieces of a provider, talkBefore how many
	// come before that which has to be stopped.
	talkEvery  = 5 * time.Millisecond
	talkBefore = 5
	forbidden  = "nightfall"
)

// measureStops measures from the verdict of an observer that stops an answer until
// the provider sees that its connection is gone, and until the run's end is
// durable.
func (b *bench) measureStops(ctx context.Context) (err error) {
	p, err := startTalker(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	model, err := openai.New(openai.Config{BaseURL: p.url})
	if err != nil {
		return err
	}
	defer model.Close()
	stopped := make(chan time.Time, 1)
	set, err := stoppers(stopped)
	if err != nil {
		return err
	}
	_, url, err := b.pg.database(ctx)
	if err != nil {
		return err
	}
	s, err := startStack(ctx, stackConfig{url: url, model: model, observers: set})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var left, ended []time.Duration
	for range b.stops {
		at, err := p.cutOff(ctx, s, stopped)
		if err != nil {
			return err
		}
		left, ended = append(left, at.left), append(ended, at.ended)
	}
	b.addTimes(partObservers, stoppedAnswer, leftAfter, left, 50, 99, 100)
	b.addTimes(partObservers, stoppedAnswer, endedAfter, ended, 50, 99)
	return nil
}

// stoppers are halt_on_pattern, which tells when it stops.
func stoppers(stopped chan<- time.Time) (*stream.Set, error) {
	reg, err := builtin.HaltOnPattern(builtin.HaltOnPatternConfig{Patterns: []string{forbidden}})
	if err != nil {
		return nil, err
	}
	begin := reg.New
	reg.New = func(c stream.Call) stream.Observer { return verdicts{begin(c), stopped} }
	return stream.NewSet(reg)
}

// cut is how long after the verdict the provider's connection was gone, and the
// run's end durable.
type cut struct{ left, ended time.Duration }

func (p *talker) cutOff(ctx context.Context, s *stack, stopped <-chan time.Time) (cut, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.playAlone(ctx); err != nil {
		return cut{}, err
	}
	ended := time.Now()
	var verdict time.Time
	select {
	case verdict = <-stopped:
	default:
		return cut{}, errors.New("a run whose answer has no end has ended, and no observer stopped it")
	}
	gone, err := p.left(ctx)
	return cut{left: gone.Sub(verdict), ended: ended.Sub(verdict)}, err
}

// left is when the connection was gone that was there last.
func (p *talker) left(ctx context.Context) (time.Time, error) {
	select {
	case at := <-p.gone:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("the provider is still read: %w", ctx.Err())
	}
}

// talker is a provider on loopback that answers for as long as somebody reads.
type talker struct {
	server *http.Server
	url    string
	gone   chan time.Time // when a connection was
	served chan error
}

func startTalker(ctx context.Context) (*talker, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for model calls: %w", err)
	}
	p := &talker{url: "http://" + listener.Addr().String() + "/v1", gone: make(chan time.Time, 1), served: make(chan error, 1)}
	p.server = &http.Server{Handler: http.HandlerFunc(p.talk), ReadHeaderTimeout: time.Minute}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

func (p *talker) talk(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a connection is watched once its request is read
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(talkEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		piece := prosePiece(i)
		if i == talkBefore {
			piece = forbidden + "."
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", piece)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			select {
			case p.gone <- time.Now():
			default: // nobody has looked at the one before
			}
			return
		}
	}
}

// stop ends the provider at once.
func (p *talker) stop() error {
	err := p.server.Close()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
