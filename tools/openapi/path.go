package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/descriptorpb"
)

// procedure is the path of a call.
func procedure(m *protogen.Method) string {
	return fmt.Sprintf("/%s/%s", m.Parent.Desc.FullName(), m.Desc.Name())
}

// pathItem is how a call is made over HTTP.
func pathItem(m *protogen.Method) (object, error) {
	switch {
	case m.Desc.IsStreamingClient():
		return nil, fmt.Errorf("%s: a stream of requests is no call that HTTP has words for", m.Desc.FullName())
	case m.Desc.IsStreamingServer():
		return object{{"post", streamOperation(m)}}, nil
	}
	post := operation(m, "")
	post.set("parameters", []object{{{"$ref", "#/components/parameters/timeout"}}})
	post.set("requestBody", object{{"required", true}, {"content", content("application/json", m.Input)}})
	post.set("responses", responses("application/json", m.Output))
	item := object{{"post", post}}
	options, _ := m.Desc.Options().(*descriptorpb.MethodOptions)
	if options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		get := operation(m, "ByGet")
		get.set("parameters", []object{
			{{"name", "message"}, {"in", "query"}, {"required", true}, {"description", "The request, as JSON."}, {"content", content("application/json", m.Input)}},
			{{"$ref", "#/components/parameters/encoding"}},
			{{"$ref", "#/components/parameters/connect"}},
			{{"$ref", "#/components/parameters/timeout"}},
		})
		get.set("responses", responses("application/json", m.Output))
		item.set("get", get)
	}
	return item, nil
}

// operation is what all have. The suffix makes the id of a second one another.
func operation(m *protogen.Method, suffix string) object {
	about := words(m.Comments.Leading)
	summary, _, _ := strings.Cut(about, ". ")
	return object{
		{"operationId", fmt.Sprintf("%s%s", m.Desc.Name(), suffix)},
		{"tags", []string{string(m.Parent.Desc.Name())}},
		{"summary", strings.TrimSuffix(summary, ".")},
		{"description", about},
	}
}

// framing is what a client without a library has to know of a stream.
const framing = "\n\nA stream of Connect: request and answer are sequences of envelopes, each one byte of flags, four bytes of length " +
	"(big endian) and a JSON message. The last one has the flag 2 and holds the error, if there is one, whatever the status. " +
	"`GET /v1/sessions/{id}/events` is the same for clients without a library."

func streamOperation(m *protogen.Method) object {
	post := operation(m, "")
	post[len(post)-1].value = words(m.Comments.Leading) + framing
	post.set("requestBody", object{{"required", true}, {"content", content("application/connect+json", m.Input)}})
	post.set("responses", responses("application/connect+json", m.Output))
	return post
}

func content(mediaType string, m *protogen.Message) object {
	return object{{mediaType, object{{"schema", object{{"$ref", reference(m.Desc)}}}}}}
}

func responses(mediaType string, m *protogen.Message) object {
	return object{
		{"200", object{{"description", words(m.Comments.Leading)}, {"content", content(mediaType, m)}}},
		{"default", object{{"$ref", "#/components/responses/CallError"}}},
	}
}
