package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	for name, test := range map[string]func(t *testing.T, request, stopping context.Context, hangUp, stop func()){
		"EndsALimitAfterTheLastBegin": func(t *testing.T, request, stopping context.Context, _, _ func()) {
			var p patience
			defer p.end()
			first := p.begin(request, stopping, limit)
			time.Sleep(limit - 1) //nolint:forbidigo // under synctest, where time is fake
			if p.begin(request, stopping, limit) != first {
				t.Error("a wait that was shorter than the limit has cost a context")
			}
			from := time.Now()
			<-first.Done()
			if lasted := time.Since(from); lasted != limit {
				t.Errorf("it lasted %s, want %s", lasted, limit)
			}
			again := p.begin(request, stopping, limit)
			if again.Err() != nil {
				t.Error("the next wait is over before it begins")
			}
			from = time.Now()
			<-again.Done()
			if lasted := time.Since(from); lasted != limit {
				t.Errorf("the next lasted %s, want %s", lasted, limit)
			}
		},
		"EndsWithTheRequest": func(t *testing.T, request, stopping context.Context, hangUp, _ func()) {
			var p patience
			defer p.end()
			wait := p.begin(request, stopping, limit)
			hangUp()
			<-wait.Done()
		},
		"EndsWhenTheServerStops": func(t *testing.T, request, stopping context.Context, _, stop func()) {
			var p patience
			defer p.end()
			for range 3 {
				<-p.begin(request, stopping, limit).Done()
			}
			from := time.Now()
			wait := p.begin(request, stopping, limit)
			stop()
			<-wait.Done()
			if lasted := time.Since(from); lasted != 0 {
				t.Errorf("it lasted %s, want no time", lasted)
			}
		},
		"CanEndBeforeItBegins": func(t *testing.T, request, stopping context.Context, _, _ func()) {
			var p patience
			p.end()
			wait := p.begin(request, stopping, limit)
			p.end()
			p.end()
			if wait.Err() == nil {
				t.Error("the context outlives the patience")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				request, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				stopping, stop := context.WithCancel(t.Context())
				defer stop()
				test(t, request, stopping, hangUp, stop)
			})
		})
	}
}
