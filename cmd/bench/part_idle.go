package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	partIdle    = "idle"
	partClients = "clients"

	// breath is how long nothing happens between two messages.
	breath = 30 * time.Millisecond
	// spareFiles are those that are no clients' connections.
	spareFiles = 500
)

// answerScript answers every message in one word.
const answerScript = `{"scenarios": [{"name": "all", "match": {"default": true}, "answers": [{"steps": [{"text": "Hello."}]}]}]}`

// stallScript says a word and is then silent for as long as anybody waits.
const stallScript = `{"scenarios": [{"name": "all", "match": {"default": true}, "answers": [{"steps": [{"text": "Let me think. "}, {"stall": true}]}]}]}`

// script writes a script of the scripted model and returns the setting that
// has agentd play it.
func (b *bench) scriptSetting(name, text string) (string, error) {
	path := filepath.Join(b.dir, name+".json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write a script: %w", err)
	}
	return "AGENTD_SCRIPT=" + path, nil
}

// clientsThatFit is at most how many connections this process may have, and the
// server with it.
func (b *bench) clientsThatFit(n int) int {
	if most := max(openFiles()-spareFiles, 1); n > most {
		b.note(fmt.Sprintf("clients: %d instead of %d, since a process may have %d files open (ulimit -n)", most, n, openFiles()))
		return most
	}
	return n
}

// measureIdle measures what one person waits for when nobody else is there.
func (b *bench) measureIdle(ctx context.Context) error {
	_, url, err := b.pg.database(ctx)
	if err != nil {
		return err
	}
	setting, err := b.scriptSetting("answer", answerScript)
	if err != nil {
		return err
	}
	sessions, err := seedSessions(ctx, url, 2000)
	if err != nil {
		return err
	}
	server, err := b.startAgentd(ctx, url, []string{setting})
	if err != nil {
		return err
	}
	defer server.Kill()
	c := newClient(server.URL())
	defer c.close()
	var first, delta, over []time.Duration
	begin := time.Now().Add(b.warm)
	for _, id := range sessions {
		now := time.Now()
		if now.After(begin.Add(b.time)) && len(first) > 0 {
			break
		}
		o, err := oneMessage(ctx, c, server.URL(), id)
		if err != nil {
			return err
		}
		if now.After(begin) {
			first, delta, over = append(first, o.first), append(delta, o.delta), append(over, o.over)
		}
		if err := pause(ctx, breath); err != nil {
			return err
		}
	}
	const item = "one message"
	b.addTimes(partIdle, item, "first event", first, 50, 99)
	b.addTimes(partIdle, item, "first delta", delta, 50, 99)
	b.addTimes(partIdle, item, "run completed", over, 50, 99)
	return nil
}

// outcome is when a client got what, counted from the request.
type outcome struct{ first, delta, over time.Duration }

func oneMessage(ctx context.Context, c client, url, sessionID string) (o outcome, err error) {
	group, ctx := errgroup.WithContext(ctx) // a message that is refused ends the stream too
	s, err := subscribe(ctx, url, sessionID, "", 4096)
	if err != nil {
		return o, err
	}
	defer s.close()
	if _, err := s.next(); err != nil { // session.created
		return o, fmt.Errorf("read an event stream: %w", err)
	}
	from := time.Now()
	group.Go(func() error { return c.start(ctx, sessionID, userText) })
	group.Go(func() error {
		for {
			data, err := s.next()
			if err != nil {
				return fmt.Errorf("read an event stream: %w", err)
			}
			since := time.Since(from)
			if o.first == 0 {
				o.first = since
			}
			switch typ := eventType(data); typ {
			case "assistant.delta":
				if o.delta == 0 {
					o.delta = since
				}
			case "run.completed":
				o.over = since
				return nil
			case "run.failed", "run.cancelled":
				return fmt.Errorf("%s: %s", typ, data)
			}
		}
	})
	return o, group.Wait()
}

// measureClients measures what clients cost that only wait.
func (b *bench) measureClients(ctx context.Context) error {
	n := b.clientsThatFit(b.idlers)
	_, url, err := b.pg.database(ctx)
	if err != nil {
		return err
	}
	sessions, err := seedSessions(ctx, url, n)
	if err != nil {
		return err
	}
	setting, err := b.scriptSetting("answer", answerScript)
	if err != nil {
		return err
	}
	server, err := b.startAgentd(ctx, url, []string{setting})
	if err != nil {
		return err
	}
	defer server.Kill()
	before, _ := memory(server.PID())
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	from := time.Now()
	// Held to the end: a connection that nobody refers to is closed.
	clients := make([]*subscription, n)
	defer runtime.KeepAlive(clients)
	err = each(ctx, 64, n, func(_ context.Context, i int) (err error) {
		if clients[i], err = subscribe(ctx, server.URL(), sessions[i], "", 512); err != nil {
			return err
		}
		_, err = clients[i].next() // it is there, and the client is up to date
		return err
	})
	if err != nil {
		return err
	}
	item := fmt.Sprintf("%d idle clients", n)
	b.add(partClients, item, "connected", perSecond, float64(n)/time.Since(from).Seconds())
	if err := pause(ctx, b.warm); err != nil {
		return err
	}
	used := processCPU(server.PID())
	if err := pause(ctx, b.time); err != nil {
		return err
	}
	used = processCPU(server.PID()) - used
	if now, _ := memory(server.PID()); now > 0 {
		b.add(partClients, item, "agentd memory", "MB", now)
		b.add(partClients, item, "of it without clients", "MB", before)
		b.add(partClients, item, "memory per client", "kB", (now-before)*1000/float64(n))
		b.add(partClients, item, "agentd CPU", "% of a core", 100*used.Seconds()/b.time.Seconds())
	}
	return ctx.Err()
}
