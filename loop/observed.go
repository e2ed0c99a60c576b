package loop

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/stream"
)

// observed is what the ledger keeps of the observers of an attempt that has ended:
// what each has done in all of it and, if one stopped it, that. None of it is text
// of the model, and no digest is of any. concluded is false if the answer has led
// to nothing, and then a stop has too.
func (r *runner) observed(t Turn, reports []stream.Report, concluded bool) []hooks.Decision {
	var out []hooks.Decision
	for _, rep := range reports {
		d := r.observer(t, hooks.GateOnEnd, stream.Asked{Registration: rep.Registration, Index: rep.Index, ChainLength: rep.ChainLength})
		d.Action = hooks.ActionContinue
		for _, l := range rep.Lanes {
			d.Action = hooks.ActionTransform
			d.FieldsChanged = append(d.FieldsChanged, string(l))
		}
		d.Latency, d.Deadline = rep.Took, max(rep.Registration.AttemptTime, 0)
		in := handed{rep.Chunks, rep.Bytes}
		did := deeds{
			handed: in, BytesOut: rep.BytesOut, Amended: rep.Amended, Emitted: rep.Emitted, Held: rep.Held, Throttled: rep.Throttled,
			PausedMS: rep.Paused.Milliseconds(), Lanes: rep.Lanes,
		}
		if f := rep.Failure; f != nil {
			did.FailedAt = &f.Chunk
			d.Outcome, d.ReasonCode, d.Payload.Reason = hooks.Outcome(f.Outcome), "observer."+f.Outcome, f.Text
			d.FailedOpen = d.FailurePolicy == hooks.FailOpen
		}
		d.InputSHA256, d.InputBytes = sumOf(in), rep.Bytes
		d.OutputSHA256, d.OutputBytes = sumOf(did), rep.BytesOut
		d.Payload.Annotations = encoded(did)
		out = append(out, d)
		if rep.Stopped == nil {
			continue
		}
		stop := r.stopRow(t, stream.Asked{Registration: rep.Registration, Index: rep.Index, ChainLength: rep.ChainLength}, *rep.Stopped)
		stop.Effective = concluded
		if f := rep.Failure; f != nil {
			stop.Outcome, stop.ReasonCode = d.Outcome, d.ReasonCode
		}
		out = append(out, stop)
	}
	return out
}

// hung is what the ledger keeps of an observer that does not come back: the row of
// the stop, if that is how the answer ended, and else one of its end. Nobody can say
// what the others have done.
func (r *runner) hung(in stream.Asked, s *stream.Stopped) []hooks.Decision {
	if in.Registration == nil {
		return nil
	}
	t, _ := r.run().Turn()
	var d hooks.Decision
	if s != nil && s.Observer == in.Registration.ID {
		d = r.stopRow(t, in, *s)
	} else {
		d = r.observer(t, hooks.GateOnEnd, in)
		d.Action, d.Payload.Reason = hooks.ActionContinue, "it did not come back"
		d.FailedOpen = d.FailurePolicy == hooks.FailOpen
	}
	d.Outcome, d.ReasonCode = hooks.OutcomeTimeout, "observer."+string(hooks.OutcomeTimeout)
	return []hooks.Decision{d}
}

func (r *runner) stopRow(t Turn, in stream.Asked, s stream.Stopped) hooks.Decision {
	d := r.observer(t, hooks.GateOnChunk, in)
	d.Action, d.ReasonCode, d.Payload.Reason = hooks.ActionStop, "observer.stop", s.Reason
	did := stopping{s.Chunk, s.Accepted, s.Policy}
	d.Deadline = max(in.Registration.ChunkTime, 0)
	d.InputSHA256, d.OutputSHA256 = sumOf(did), sumOf(did)
	d.InputBytes, d.OutputBytes = s.Accepted, s.Accepted
	d.Payload.Annotations = encoded(did)
	return d
}

// observer is what all decisions of an observer have in common.
func (r *runner) observer(t Turn, gate hooks.Gate, in stream.Asked) hooks.Decision {
	p := r.position(gate, t.No, r.callOf(t.No), t.Attempt)
	d := hooks.Decision{
		ID: p.DecisionID(hooks.PhaseMutate, in.Index, in.Registration.ID), At: r.engine.Now().UTC().Truncate(time.Microsecond),
		Position: p, Phase: hooks.PhaseMutate, Index: in.Index, ChainLength: in.ChainLength,
		HookID: in.Registration.ID, HookKind: hooks.KindObserver, HookVersion: in.Registration.Version, HookDigest: in.Registration.Digest, HookSetDigest: r.hookSet(),
		Effective: true, Outcome: hooks.OutcomeOK, FailurePolicy: hooks.FailOpen,
	}
	if in.Registration.OnFailure == stream.FailStop {
		d.FailurePolicy = hooks.FailClosed
	}
	return d
}

// handed, deeds and stopping are annotations. Their fields are stored.
type handed struct {
	Chunks int `json:"chunks"`
	Bytes  int `json:"bytes"`
}

type deeds struct {
	handed
	BytesOut  int           `json:"bytes_out"`
	Amended   int           `json:"amended"`
	Emitted   int           `json:"emitted"`
	Held      int           `json:"held"`
	Throttled int           `json:"throttled"`
	PausedMS  int64         `json:"paused_ms"`
	Lanes     []stream.Lane `json:"lanes,omitempty"`
	// FailedAt is the number of the chunk at which it failed, nil if it did not.
	FailedAt *int `json:"failed_at,omitempty"`
}

type stopping struct {
	Chunk    int               `json:"chunk"`
	Accepted int               `json:"accepted"`
	Policy   stream.StopPolicy `json:"policy"`
}

func encoded(v any) string {
	b, _ := json.Marshal(v) // counts and words always have a JSON form
	return string(b)
}

func sumOf(v any) [32]byte { return sha256.Sum256([]byte(encoded(v))) }
