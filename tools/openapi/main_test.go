package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/seed-2ca4966b/agentd/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

const base = `{"openapi": "3.1.0", "paths": {"/healthz": {}}, "components": {"schemas": {"First": {"maximum": 9007199254740993}}}}`

// files are those of a plugin that is asked for a proto with these declarations.
func files(t *testing.T, declarations string) []*protogen.File {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	text := `name: "zoo/v1/zoo.proto" package: "zoo.v1" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
		options { go_package: "example.com/zoo/v1" }` + declarations
	if err := prototext.Unmarshal([]byte(text), file); err != nil {
		t.Fatal(err)
	}
	p, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file.GetName()},
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto), file},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p.Files
}

func field(name string, number int, rest string) string {
	return fmt.Sprintf(`field { name: %q json_name: %q number: %d label: LABEL_OPTIONAL %s }`, name, name, number, rest)
}

const method = `service { name: "Keeper" method { name: "Feed" input_type: ".zoo.v1.FeedRequest" output_type: ".zoo.v1.Animal" %s } }
	source_code_info { location { path: [6, 0, 2, 0] span: [1, 1, 1] leading_comments: " Feed feeds one. It may\n bite.\n\n Never feed it twice.\n" } }`

func zoo(t *testing.T, options string) []*protogen.File {
	return files(t, `message_type { name: "FeedRequest" `+field("id", 1, `type: TYPE_UINT64`)+` }
		message_type { name: "Animal" `+
		field("kind", 1, `type: TYPE_ENUM type_name: ".zoo.v1.Kind"`)+field("born", 2, `type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"`)+
		field("legs", 3, `type: TYPE_UINT32 oneof_index: 0`)+field("wings", 4, `type: TYPE_INT32 oneof_index: 0`)+
		`field { name: "young" json_name: "young" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".zoo.v1.Animal" }
		field { name: "tags" json_name: "tags" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".zoo.v1.Animal.TagsEntry" }
		field { name: "tame" json_name: "tame" number: 7 label: LABEL_OPTIONAL type: TYPE_BOOL proto3_optional: true oneof_index: 1 }
		oneof_decl { name: "limbs" } oneof_decl { name: "_tame" }
		nested_type { name: "TagsEntry" `+field("key", 1, `type: TYPE_STRING`)+field("value", 2, `type: TYPE_STRING`)+` options { map_entry: true } } }
		enum_type { name: "Kind" value { name: "KIND_UNSPECIFIED" number: 0 } value { name: "KIND_CAT" number: 1 } }`+
		fmt.Sprintf(method, options))
}

func TestTheDocumentIsTheBaseAndTheCalls(t *testing.T) {
	t.Parallel()
	text, err := generate([]byte(base), zoo(t, `options { idempotency_level: NO_SIDE_EFFECTS }`))
	if err != nil {
		t.Fatal(err)
	}
	again, err := generate([]byte(base), zoo(t, `options { idempotency_level: NO_SIDE_EFFECTS }`))
	if err != nil || string(again) != string(text) {
		t.Errorf("%v, or the same input gave other bytes", err)
	}
	for _, want := range []string{
		`"maximum": 9007199254740993`, // of the base, digit for digit
		`"description": "Feed feeds one. It may bite.\n\nNever feed it twice."`, `"summary": "Feed feeds one"`,
		`"operationId": "FeedByGet"`, `"additionalProperties": false`, `"format": "uint64"`, `"format": "date-time"`,
		"Only one of `legs`, `wings`: ", `"KIND_UNSPECIFIED",`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("nothing like %s in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "`tame`") || strings.Contains(string(text), "TagsEntry") {
		t.Errorf("what only the encoding knows is told:\n%s", text)
	}
	var d struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas map[string]struct{ Properties map[string]map[string]any }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Paths) != 2 || d.Paths["/healthz"] == nil || d.Paths["/zoo.v1.Keeper/Feed"]["post"] == nil || len(d.Components.Schemas) != 4 {
		t.Errorf("got %v", d)
	}
	animal := d.Components.Schemas["Animal"].Properties
	for name, want := range map[string]string{
		"young": `map[description: items:map[$ref:#/components/schemas/Animal] type:array]`,
		"tags":  `map[additionalProperties:map[type:string] description: type:object]`,
		"kind":  `map[$ref:#/components/schemas/Kind description:]`,
		"tame":  `map[description: type:boolean]`,
	} {
		if got := fmt.Sprint(animal[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestACallThatChangesSomethingHasNoGET(t *testing.T) {
	t.Parallel()
	text, err := generate([]byte(base), zoo(t, ""))
	if err != nil || strings.Contains(string(text), "ByGet") || !strings.Contains(string(text), `"operationId": "Feed"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestAStreamSaysHowItIsFramed(t *testing.T) {
	t.Parallel()
	text, err := generate([]byte(base), zoo(t, "server_streaming: true"))
	if err != nil || !strings.Contains(string(text), "envelopes") || strings.Count(string(text), "application/connect+json") != 2 {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestWhatCannotBeDescribedIsAnError(t *testing.T) {
	t.Parallel()
	double := files(t, `message_type { name: "Scale" `+field("grams", 1, `type: TYPE_DOUBLE`)+` }`)
	doubles := files(t, `message_type { name: "Scale" field { name: "grams" json_name: "grams" number: 1 label: LABEL_REPEATED type: TYPE_DOUBLE } }`)
	for name, tt := range map[string]struct {
		base  string
		files []*protogen.File
		want  string
	}{
		"a type":                {base, double, "zoo.v1.Scale.grams: there is no schema for the type double"},
		"a list of it":          {base, doubles, "zoo.v1.Scale.grams: there is no schema for the type double"},
		"a stream of requests":  {base, zoo(t, "client_streaming: true"), "zoo.v1.Keeper.Feed"},
		"a base without paths":  {`{"components": {"schemas": {}}}`, zoo(t, ""), "paths: is missing"},
		"one without schemas":   {`{"paths": {}, "components": {}}`, zoo(t, ""), "components: schemas: is missing"},
		"one that has the path": {`{"paths": {"/zoo.v1.Keeper/Feed": {}}, "components": {"schemas": {}}}`, zoo(t, ""), "is there twice"},
		"paths that are none":   {`{"paths": [], "components": {"schemas": {}}}`, zoo(t, ""), "paths: begins with ["},
		"a base that is a list": {`[]`, zoo(t, ""), "base document: begins with ["},
		"an empty base":         {``, zoo(t, ""), "base document: EOF"},
		"a base that is cut":    {`{"paths": {}`, zoo(t, ""), "base document: "},
		"one that is cut early": {`{"paths": `, zoo(t, ""), "base document: "},
		"one that is no JSON":   {`{paths}`, zoo(t, ""), "base document: "},
	} {
		if text, err := generate([]byte(tt.base), tt.files); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q; %s", name, err, tt.want, text)
		}
	}
}
