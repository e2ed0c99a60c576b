// Command openapi is a protoc plugin. It writes openapi.json: the unary calls of
// the protos as JSON over Connect, beside the routes of a base document that are
// no calls. The order is that of the protos, so the same input gives the same
// bytes.
//
// Its one option is base=FILE, the base document.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	var options flag.FlagSet
	base := options.String("base", "", "the document that the calls are added to")
	protogen.Options{ParamFunc: options.Set}.Run(func(p *protogen.Plugin) error {
		p.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		text, err := os.ReadFile(*base)
		if err != nil {
			return fmt.Errorf("base document: %w", err)
		}
		document, err := generate(text, p.Files)
		if err != nil {
			return err
		}
		_, err = p.NewGeneratedFile("openapi.json", "").Write(document)
		return err
	})
}

// generate adds what the files define to the base document.
func generate(base []byte, files []*protogen.File) ([]byte, error) {
	document, err := parse(base)
	if err != nil {
		return nil, fmt.Errorf("base document: %w", err)
	}
	paths, schemas := object{}, object{}
	for _, f := range files {
		if !f.Generate {
			continue
		}
		for _, s := range f.Services {
			for _, m := range s.Methods {
				item, err := pathItem(m)
				if err != nil {
					return nil, err
				}
				paths.set(procedure(m), item)
			}
		}
		for _, e := range f.Enums {
			schemas.set(name(e.Desc), enumSchema(e))
		}
		for _, m := range f.Messages {
			schema, err := messageSchema(m)
			if err != nil {
				return nil, err
			}
			schemas.set(name(m.Desc), schema)
		}
	}
	if err := document.extend(paths, "paths"); err != nil {
		return nil, err
	}
	if err := document.extend(schemas, "components", "schemas"); err != nil {
		return nil, err
	}
	var compact, out bytes.Buffer
	encoder := json.NewEncoder(&compact)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	err = json.Indent(&out, compact.Bytes(), "", "  ")
	return out.Bytes(), err
}
