package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/pluginhost"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// roleIDs are the plugins that play roles; the late one of those that deny validates.
const (
	lateDenier = "d-late"
	bookUTC    = `{"zone":"UTC"}`
)

// putRoles installs the plugins of an order, so that they are discovered in it.
func (d pluginDirs) putRoles(t *testing.T, order string) {
	t.Helper()
	for i := range len(order) {
		id := strings.ToLower(order[i : i+1])
		d.put(t, id, "1", "order")
		if err := os.Rename(filepath.Join(d.plugins, id), filepath.Join(d.plugins, fmt.Sprint(i)+id)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPluginsInEveryOrderHaveTheSameSay as other hooks: each sees what the ones before it
// have left, who says nothing changes nothing, a person is asked about what then runs, and
// whoever denies wins.
func TestPluginsInEveryOrderHaveTheSameSay(t *testing.T) {
	t.Parallel()
	s := newStack(t, storetest.New(t))
	w := newPluginWorld(t, newPluginDirs(t))
	w.putRoles(t, roles)
	w.put(t, lateDenier, "1", "order-late")
	caller, plugins, err := w.load()
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]*pluginhost.Plugin{}
	for _, p := range plugins {
		byID[p.ID()] = p
	}
	for n, order := range orders(roles) {
		for round := range rounds(1, 4) {
			a := arrangement{order: order, phases: map[byte]hooks.Phase{}}
			if (n+round)%2 == 1 {
				a.phases['D'] = hooks.PhaseValidate
			}
			var h hooks.Hooks
			for i := range len(order) {
				id := strings.ToLower(order[i : i+1])
				if a.phase(order[i]) == hooks.PhaseValidate {
					id = lateDenier
				}
				h = h.Then(caller.Only(byID[id]))
			}
			s.judges(t, a, h)
		}
	}
}

// TestPluginsAreAskedInTheOrderInWhichTheyAreDiscovered, and are after a restart in the
// middle of a run.
func TestPluginsAreAskedInTheOrderInWhichTheyAreDiscovered(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for _, order := range rounded([]string{"DNMA"}, orders(roles)) {
		s := newStack(t, db)
		dirs := newPluginDirs(t)
		dirs.putRoles(t, order)
		w := newPluginWorld(t, dirs)
		caller, _, err := w.load()
		if err != nil {
			t.Fatal(err)
		}
		a := arrangement{order: order}
		rows, question, denied := a.expected()
		p := s.newPoliced(t, caller.Hooks(), [2]string{toolBook, `{"zone":"CET"}`})
		run := p.goes()
		if denied != (run.Status == loop.RunCompleted) {
			t.Errorf("%s: the run is %s", order, run.Status)
		}
		w.close()
		s = s.again(t)
		if !denied {
			w = newPluginWorld(t, dirs)
			if caller, _, err = w.load(); err != nil {
				t.Fatal(err)
			}
			after := s.newPoliced(t, caller.Hooks(), [2]string{toolBook, `{"zone":"CET"}`})
			after.job = p.job
			after.approves(order, question, bookUTC)
			if ran := after.all(); !slices.Equal(ran, []string{bookUTC}) {
				t.Errorf("%s: approved after a restart, and the tool ran with %q", order, ran)
			}
		}
		if got := roleRows(t, s.db, p.job.SessionID); !slices.Equal(got, rows) {
			t.Errorf("%s: ledger\n%s\nwant\n%s", order, strings.Join(got, "\n"), strings.Join(rows, "\n"))
		}
		s.stop()
	}
}
