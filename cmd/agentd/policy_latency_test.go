package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
)

// numbered returns ids that are the same for every run of a test.
func numbered() func() string {
	var n atomic.Uint64
	return func() string {
		id := uuid.UUID{6: 0x70, 8: 0x80}
		binary.BigEndian.PutUint32(id[12:], uint32(n.Add(1))) //nolint:gosec // a test draws few
		return id.String()
	}
}

// TestWhoIsFasterDecidesNothing: with a chain of policies of all kinds, some of which
// take their time, the rows are the same to the byte, but for the times, if the
// slow ones are the fast ones.
func TestWhoIsFasterDecidesNothing(t *testing.T) {
	t.Parallel()
	const chain = "NMADNM"
	var inverted atomic.Bool
	var h hooks.Hooks
	for i := range len(chain) {
		p := rolePolicies[chain[i]]
		p.id, p.phase = p.id+fmt.Sprint(i), hooks.PhaseMutate
		if chain[i] == 'D' {
			p.phase = hooks.PhaseValidate
		}
		p.after = func() time.Duration {
			if inverted.Load() {
				return time.Duration(len(chain)-1-i) * 200 * time.Microsecond
			}
			return time.Duration(i) * 200 * time.Microsecond
		}
		h = h.Then(policyKinds[i%len(policyKinds)].make(t, p))
	}
	first := map[string][]string{}
	for round := range rounds(8, 1000) {
		inverted.Store(round%2 == 1)
		for _, zone := range []string{"CET", "EET"} {
			got := rowsOfChain(t, h, zone)
			if first[zone] == nil {
				first[zone] = got
			}
			for i := range max(len(got), len(first[zone])) {
				if i >= len(got) || i >= len(first[zone]) || got[i] != first[zone][i] {
					t.Fatalf("round %d, %d and %d rows\n%q\nand before\n%q", round, len(got), len(first[zone]), got[min(i, len(got)-1):], first[zone][min(i, len(first[zone])-1):])
				}
			}
		}
	}
	for zone, rows := range first {
		if len(rows) != len(chain) || !strings.Contains(rows[len(chain)-1], "ReasonCode:utc") {
			t.Errorf("%s: ledger\n%s", zone, strings.Join(rows, "\n"))
		}
	}
}

// rowsOfChain are the whole rows of one run, without the times and what is made of
// them or drawn.
func rowsOfChain(t *testing.T, h hooks.Hooks, zone string) (rows []string) {
	t.Helper()
	log := looptest.NewLog()
	b := looptest.NewBench(log, looptest.Answers(
		looptest.Answer(looptest.ToolCall("p", toolBook, `{"zone":"`+zone+`"}`), looptest.Finish(stream.FinishToolCalls)),
		looptest.Answer(looptest.Text("Done."), looptest.Finish(stream.FinishStop))), looptest.Says(toolBook, "booked"))
	ids := numbered()
	b.Commands.NewID, b.Engine.NewID = ids, ids
	b.Use(h)
	j := b.Start(t, b.Session(t), "go")
	if err := b.Engine.Advance(t.Context(), j, loop.Holder{WorkerID: uuid.UUID{15: 1}.String()}); err != nil {
		t.Fatal(err)
	}
	for _, r := range log.Ledger(j.SessionID) {
		row := r.Row
		row.At, row.Latency, row.Queue = time.Time{}, 0, 0
		row.PayloadSHA256, row.PrevHash = nil, [32]byte{}
		rows = append(rows, fmt.Sprintf("%+v", row))
	}
	return rows
}
