package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxElements is how many elements of lists and maps a message may have. Two bytes
// make an element, and what becomes of it takes a hundred times as much: the limits
// of messages alone would not bound what a plugin makes its host allocate.
const MaxElements = messages / elementSize

// elementSize is what hooks count for an element at least.
const elementSize = 32

// Bounded is gRPC's codec, except that it does not take messages of more than
// [MaxElements] elements. It is for the host: grpc.ForceCodecV2(wire.Bounded()).
func Bounded() encoding.CodecV2 { return bounded{encoding.GetCodecV2(proto.Name)} }

type bounded struct{ encoding.CodecV2 }

var errElements = errors.New("the message has too many elements")

// Unmarshal implements encoding.CodecV2.
func (b bounded) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(protobuf.Message)
	if !ok {
		return fmt.Errorf("a %T is no message", v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	left := MaxElements
	if err := count(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), &left); err != nil {
		return err
	}
	return b.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}

// count takes the elements of a message off left, also those of what it holds. What
// it cannot read is an error.
func count(raw []byte, of protoreflect.MessageDescriptor, left *int) error {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		size := protowire.ConsumeFieldValue(number, kind, raw)
		if size < 0 {
			return protowire.ParseError(size)
		}
		value := raw[:size]
		raw = raw[size:]
		field := of.Fields().ByNumber(number)
		if field == nil {
			continue // it is kept as it is
		}
		if field.Cardinality() == protoreflect.Repeated {
			if *left--; *left < 0 {
				return errElements
			}
		}
		if field.Message() == nil || kind != protowire.BytesType {
			continue
		}
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := count(inner, field.Message(), left); err != nil {
			return err
		}
	}
	return nil
}
