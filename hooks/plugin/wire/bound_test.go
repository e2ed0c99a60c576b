package wire_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/seed-2ca4966b/agentd/hooks"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/pluginv1"
	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
)

// within puts what a message holds into fields, the innermost first.
func within(raw []byte, fields ...protowire.Number) []byte {
	for _, n := range fields {
		raw = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), raw)
	}
	return raw
}

func TestTheHostReadsNoMoreElementsThanItHasRoomFor(t *testing.T) {
	t.Parallel()
	empty := func(n int) []byte { return bytes.Repeat([]byte{1<<3 | 2, 0}, n) }
	parts := func(n int) []byte { return bytes.Repeat([]byte{4<<3 | 2, 0}, n) }
	note := within(within([]byte("k"), 1), 3, 1)
	for name, test := range map[string]struct {
		answer []byte
		taken  bool
	}{
		"as many names as there may be": {within(empty(wire.MaxElements), 3, 4), true},
		"one more":                      {within(empty(wire.MaxElements+1), 3, 4), false},
		"messages":                      {within(empty(wire.MaxElements+1), 1, 5), false},
		"parts of two messages":         {within(bytes.Repeat(within(parts(wire.MaxElements/2), 1), 2), 1, 5), false},
		"notes":                         {bytes.Repeat(note, wire.MaxElements+1), false},
		"one long text":                 {within(make([]byte, 1<<20), 2, 3), true},
	} {
		err := wire.Bounded().Unmarshal(mem.BufferSlice{mem.SliceBuffer(test.answer)}, &pluginv1.EvaluateResponse{})
		if (err == nil) != test.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := wire.Bounded().Unmarshal(nil, "x"); err == nil {
		t.Error("a text was taken for a message")
	}
}

func TestTheHostReadsWhatAPluginSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, got := &pluginv1.BootstrapResponse{}, &pluginv1.BootstrapResponse{}
		fillMessage(t, a.ProtoReflect())
		raw, err := proto.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.Bounded().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, got); err != nil || !proto.Equal(a, got) {
			t.Fatalf("%v, %v", got, err)
		}
	})
}

func FuzzTheHostReadsWhatAnybodySays(f *testing.F) {
	seed, _ := proto.Marshal(wire.BeforeExecute.Answer(hooks.BeforeExecuteResult{Action: hooks.ActionBlock, Annotations: map[string]string{"a": "b"}}))
	f.Add(seed)
	f.Add([]byte{0x0a, 0x80})
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x7f})
	f.Add([]byte{0x0b, 0x0c, 0x0d, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, want := &pluginv1.EvaluateResponse{}, &pluginv1.EvaluateResponse{}
		err := wire.Bounded().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, got)
		if plain := proto.Unmarshal(raw, want); err == nil && (plain != nil || !proto.Equal(got, want)) {
			t.Fatalf("%v, plain %v, %v", got, want, plain)
		}
		if err == nil {
			_, _ = wire.TransformContext.Answered(got)
		}
	})
}
