package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-2ca4966b/agentd/cmd/proc"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

const (
	apiSlots        = 2
	workerSlots     = 3
	processPatience = 40 * time.Second // a start waits for Postgres, and an end for runs
)

// fleet is the processes of agentd. It is safe for concurrent use.
type fleet struct {
	settings settings
	dir      string
	postgres *postgres
	stage    stage
	slots    []*slot

	mu    sync.Mutex
	count [faultKinds]int
	// deaths are those of workers.
	deaths []death
	// broken is the first thing that this program could not do.
	broken error
}

// death is a kill of a process that took jobs.
type death struct {
	worker string
	at     time.Time
	kind   faultKind
	lasts  time.Duration
}

// slot is the place of one process, which may be empty for a while.
type slot struct {
	name   string
	args   []string
	env    []string
	listen string // of an API, "" for a worker
	line   *storetest.Line
	log    *os.File

	// acting is held while the process is started or ended.
	acting sync.Mutex
	mu     sync.Mutex
	now    *proc.Process // nil while there is none
}

func (s *slot) process() *proc.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *slot) set(p *proc.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = p
}

// atCommit is what becomes of the next COMMIT of the process, and of no other.
func (s *slot) atCommit(fault storetest.Fault) {
	var done atomic.Bool
	s.line.Faults(func(request []byte) storetest.Fault {
		if !storetest.IsCommit(request) || done.Swap(true) {
			return storetest.Fault{}
		}
		return fault
	})
}

// newFleet starts all processes.
func newFleet(ctx context.Context, s settings, dir string, p *postgres, providerURL string) (_ *fleet, err error) {
	f := &fleet{settings: s, dir: dir, postgres: p}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	for i := range apiSlots + workerSlots {
		slot, err := f.newSlot(i, providerURL)
		if err != nil {
			return nil, err
		}
		f.slots = append(f.slots, slot)
		if err := f.start(ctx, slot); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) newSlot(i int, providerURL string) (*slot, error) {
	s := &slot{name: fmt.Sprintf("worker%d", i-apiSlots+1), args: []string{"serve", "--roles=worker"}}
	listen := "127.0.0.1:0"
	if i < apiSlots {
		// A front end has an address; one that is free now stays so.
		l, err := net.Listen("tcp", listen)
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		listen = l.Addr().String()
		_ = l.Close()
		s.name, s.args, s.listen = fmt.Sprintf("api%d", i+1), []string{"serve", "--roles=api"}, listen
	}
	var err error
	if s.log, err = os.Create(filepath.Join(f.dir, s.name+".log")); err != nil {
		return nil, err
	}
	s.line = storetest.NewLine(&f.stage, f.postgres.url)
	s.env = []string{
		"AGENTD_DATABASE_URL=" + s.line.URL, "AGENTD_LISTEN=" + listen, "AGENTD_EFFECTS=" + effectsPath(f.dir),
		"OPENAI_BASE_URL=" + providerURL, "OPENAI_API_KEY=none", "OPENAI_MODEL=fake",
		"AGENTD_TOOL_PERMISSIONS=pay=ask", "AGENTD_DENY_TOOLS=denied", "AGENTD_MAX_INPUT_BYTES=10000", "AGENTD_GRACE=3s",
	}
	return s, nil
}

// start fills a slot. A process that cannot start, since Postgres is away, is
// started again.
func (f *fleet) start(ctx context.Context, s *slot) error {
	for limit := time.Now().Add(processPatience); ; {
		p, err := proc.Start(ctx, proc.Config{
			Binary: f.settings.Agentd, Args: s.args, Env: s.env, Patience: processPatience, Log: s.log,
		})
		if err == nil {
			s.set(p)
			return nil
		}
		if ctx.Err() != nil || time.Now().After(limit) {
			return err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// play does what a schedule says, and returns when all of it is over and every
// process is there again.
func (f *fleet) play(ctx context.Context, faults []fault) error {
	var acting sync.WaitGroup
	began := time.Now()
	for _, next := range faults {
		if err := pause(ctx, next.at-time.Since(began)); err != nil {
			break
		}
		acting.Go(func() {
			if err := f.act(ctx, next); err != nil && ctx.Err() == nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.broken = errors.Join(f.broken, fmt.Errorf("%s: %w", next, err))
			}
		})
	}
	acting.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

func (f *fleet) act(ctx context.Context, next fault) error {
	if next.kind == restart || next.kind == crash {
		f.counted(next.kind)
		return f.postgres.bounce(ctx, next.kind == crash, next.lasts)
	}
	s, p := f.victim(next.slot)
	if p == nil {
		return nil // all are dead
	}
	f.counted(next.kind)
	switch next.kind {
	case cut:
		s.line.Cut()
		s.line.Mend()
	case loseCommit:
		s.atCommit(storetest.Fault{LoseRequest: true})
	case loseAnswer:
		s.atCommit(storetest.Fault{LoseReply: true})
	case silence:
		s.line.Hang()
		defer s.line.Speak()
		return pause(ctx, next.lasts)
	case freeze:
		f.died(p, next)
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := pause(ctx, next.lasts)
		return errors.Join(err, p.Signal(syscall.SIGCONT))
	case kill, leave:
		return f.replace(ctx, s, p, next)
	case restart, crash, faultKinds:
	}
	return nil
}

// replace ends a process and starts another one in its place.
func (f *fleet) replace(ctx context.Context, s *slot, p *proc.Process, next fault) error {
	s.acting.Lock()
	defer s.acting.Unlock()
	if s.process() != p {
		return nil // somebody else was faster
	}
	s.set(nil)
	if next.kind == kill {
		f.died(p, next)
		p.Kill()
	} else if err := p.Leave(); err != nil {
		return err
	}
	if err := pause(ctx, next.lasts); err != nil {
		return err
	}
	return f.start(ctx, s)
}

// victim is the process in a slot, or in the next one that has one.
func (f *fleet) victim(from int) (*slot, *proc.Process) {
	for i := range f.slots {
		s := f.slots[(from+i)%len(f.slots)]
		if p := s.process(); p != nil {
			return s, p
		}
	}
	return nil, nil
}

func (f *fleet) counted(k faultKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[k]++
}

func (f *fleet) died(p *proc.Process, next fault) {
	worker := p.Worker()
	if worker == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaths = append(f.deaths, death{worker: worker, at: time.Now(), kind: next.kind, lasts: next.lasts})
}

// urls are where the API is, whether somebody is there or not.
func (f *fleet) urls() (urls []string) {
	for _, s := range f.slots {
		if s.listen != "" {
			urls = append(urls, "http://"+s.listen)
		}
	}
	return urls
}

// stop kills what is left.
func (f *fleet) stop() {
	for _, s := range f.slots {
		if p := s.process(); p != nil {
			p.Kill()
		}
		_ = s.log.Close() // it was written for people, and nobody reads it yet
	}
	f.stage.end()
}
