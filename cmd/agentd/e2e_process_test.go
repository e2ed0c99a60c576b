package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	agentdv1 "github.com/seed-2ca4966b/agentd/api/gen/agentd/v1"
	"github.com/seed-2ca4966b/agentd/loop"
	"github.com/seed-2ca4966b/agentd/loop/looptest"
	"github.com/seed-2ca4966b/agentd/store/storetest"
)

// e2eVariable makes TestClientsOfOtherLanguages run: `make e2e` does, since it
// takes packages from the network.
const e2eVariable = "AGENTD_E2E"

// e2eToolsVariable gives an agentd the tools that e2e/clients/script.json calls.
const e2eToolsVariable = "AGENTD_TEST_E2E_TOOLS"

func init() {
	if os.Getenv(e2eToolsVariable) != "" {
		answers := func(name, output string) loop.Tool {
			return looptest.Tool{Name: name, Run: func(context.Context, loop.ToolInput) (loop.ToolOutput, error) {
				return loop.ToolOutput{Content: output}, nil
			}}
		}
		extraTools = append(extraTools, answers("get_weather", `{"city":"Paris","temp_c":21}`), answers("delete_file", `{"deleted":true}`))
	}
}

// writeProtos writes the descriptors of the API, imports first.
func writeProtos(t *testing.T) (path string) {
	t.Helper()
	set, added := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if added[f.Path()] {
			return
		}
		added[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(agentdv1.File_agentd_v1_error_proto) // in the details of errors, which no service imports
	for _, f := range services {
		add(f)
	}
	content, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "protos.binpb")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// install copies the scripts to a directory of their own and gets the packages of
// one. What is there already is used again.
func install(t *testing.T, scripts, work, client string) (dir string) {
	t.Helper()
	dir = filepath.Join(work, client)
	for from, to := range map[string]string{
		filepath.Join(scripts, "check.mjs"):                 filepath.Join(work, "check.mjs"),
		filepath.Join(scripts, client, "client.mjs"):        filepath.Join(dir, "client.mjs"),
		filepath.Join(scripts, client, "package.json"):      filepath.Join(dir, "package.json"),
		filepath.Join(scripts, client, "package-lock.json"): filepath.Join(dir, "package-lock.json"),
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

func TestClientsOfOtherLanguages(t *testing.T) {
	t.Parallel()
	if os.Getenv(e2eVariable) == "" {
		t.Skip("make e2e runs this")
	}
	scripts, err := filepath.Abs(filepath.Join("..", "..", "e2e", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := filepath.Abs(filepath.Join("..", "..", "bin", "e2e"))
	if err != nil {
		t.Fatal(err)
	}
	packages, err := filepath.Glob(filepath.Join(scripts, "*", "package.json"))
	if err != nil || len(packages) == 0 {
		t.Fatalf("%v, %v: no clients", packages, err)
	}
	s := startServe(t, storetest.New(t), []string{
		"AGENTD_API_KEY=e2e", "AGENTD_SCRIPT=" + filepath.Join(scripts, "script.json"), e2eToolsVariable + "=1",
		"AGENTD_TOOL_PERMISSIONS=delete_file=ask",
	})
	protos := writeProtos(t)
	for _, p := range packages {
		client := filepath.Base(filepath.Dir(p))
		dir := install(t, scripts, work, client) // one after the other: they share a file
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			node := exec.CommandContext(t.Context(), "node", "client.mjs")
			node.Dir = dir
			node.Env = append(os.Environ(), "BASE_URL="+s.url, "API_KEY=e2e", "PROTOS="+protos)
			var out strings.Builder
			node.Stdout, node.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
			if err := node.Run(); err != nil || !strings.Contains(out.String(), ", 0 failed\n") {
				t.Errorf("node client.mjs: %v", err)
			}
		})
	}
}
