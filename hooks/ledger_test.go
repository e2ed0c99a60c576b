package hooks_test

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// fullRow has another value in each column.
func fullRow() hooks.Row {
	r := hooks.Row{
		Decision: hooks.Decision{
			ID: "7f0c1b7e-0000-5000-8000-000000000001", At: time.UnixMicro(1764446400123456).UTC(),
			Position: hooks.Position{
				TenantID: "tenant", SessionID: "session", RunID: "run", Turn: 3,
				Gate: hooks.GateBeforeToolCall, Subject: "call", Attempt: 2,
			},
			Phase: hooks.PhaseMutate, Index: 4, ChainLength: 5,
			HookID: "hook", HookKind: hooks.KindGo, HookVersion: "1.2", HookDigest: "hd", HookSetDigest: "sd", RuleID: "rule",
			Action: hooks.ActionTransform, Effective: true, Outcome: hooks.OutcomeOK, FailurePolicy: hooks.FailOpen, FailedOpen: false,
			ReasonCode: "code", FieldsChanged: []string{"arguments", "zürich"},
			InputBytes: 10, OutputBytes: 11,
			Queue: 12 * time.Microsecond, Latency: 13 * time.Microsecond, Deadline: 2 * time.Second, TraceID: "trace",
		},
		LedgerSeq: 6, EventSeq: 7, Epoch: 8, WorkerID: "worker", PayloadSHA256: make([]byte, 32),
	}
	for i := range 32 {
		r.InputSHA256[i], r.OutputSHA256[i], r.PayloadSHA256[i], r.PrevHash[i] = byte(i), byte(i+32), byte(i+64), byte(i+96)
	}
	return r
}

// TestStoredHashesDoNotChange: the values were computed by a script that was
// written from the comments alone.
func TestStoredHashesDoNotChange(t *testing.T) {
	t.Parallel()
	sum := func(h [32]byte) string { return hex.EncodeToString(h[:]) }
	salt := [32]byte{31: 1}
	bare := hooks.Row{Decision: hooks.Decision{At: time.UnixMicro(0)}}
	for name, c := range map[string]struct{ got, want string }{
		"full":          {sum(fullRow().Hash()), "8e0f86dc5dae4a43fc2b3aef59917d07776a656c04fc2f5da4872bec9803cb4d"},
		"bare":          {sum(bare.Hash()), "98e29bf8dce21c891b238d3f2e373fb0bf697d79321f9f83cf584dc017fc83dd"},
		"payload":       {sum(hooks.Payload{Reason: "r", Patch: "[]", Annotations: "{}"}.Hash(salt)), "af01e238c85adc95b4df8564e938e89b7716a54ddcdfd4aecf9cfe8f14d297dd"},
		"empty payload": {sum(hooks.Payload{}.Hash(salt)), "8e2d71cf56e0198870c7009f644fdc7f14493ed86f3486dfcdbf2485134785ed"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s; want %s", name, c.got, c.want)
		}
	}
}

// TestHashCoversEveryColumn: an edit of any field shows. A column that is
// added and left out of the hash fails here.
func TestHashCoversEveryColumn(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]string{fullRow().Hash(): "the row itself"}
	fields := 0
	var walk func(v reflect.Value, name string, r *hooks.Row)
	walk = func(v reflect.Value, name string, r *hooks.Row) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch {
		case v.Type() == reflect.TypeFor[hooks.Payload]():
			return // bound by PayloadSHA256
		case v.Type() == reflect.TypeFor[time.Time]():
			v.Set(reflect.ValueOf(v.Interface().(time.Time).Add(time.Microsecond)))
		case v.Type() == reflect.TypeFor[time.Duration]():
			v.SetInt(v.Int() + int64(time.Millisecond))
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), name+"."+v.Type().Field(i).Name, r)
			}
			return
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.Kind() == reflect.Array:
			v.Index(0).SetUint(255)
		case v.Type() == reflect.TypeFor[[]byte]():
			v.SetBytes([]byte("other"))
		case v.Type() == reflect.TypeFor[[]string]():
			v.Set(reflect.ValueOf([]string{"argumentsz", "ürich"}))
		default:
			t.Fatalf("%s: no way to change a %s", name, v.Type())
		}
		fields++
		h := r.Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("a change of %s has the hash of %s", name, other)
		}
		seen[h] = name
		v.Set(old)
	}
	r := fullRow()
	walk(reflect.ValueOf(&r).Elem(), "Row", &r)
	if fields != 39 {
		t.Errorf("%d columns; want 39", fields)
	}
}

func TestNullIsNotEmpty(t *testing.T) {
	t.Parallel()
	a, b := fullRow(), fullRow()
	a.PayloadSHA256, b.PayloadSHA256 = nil, []byte{}
	if a.Hash() == b.Hash() {
		t.Error("no payload and an empty hash are the same")
	}
	var salt [32]byte
	if (hooks.Payload{Reason: "x"}).Hash(salt) == (hooks.Payload{Patch: "x"}).Hash(salt) {
		t.Error("a reason and a patch of the same text are the same")
	}
	if (hooks.Payload{Reason: "x"}).Empty() || !(hooks.Payload{}).Empty() {
		t.Error("Empty does not say whether there is something to store")
	}
}
