package pluginhost

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-2ca4966b/agentd/hooks/plugin/wire"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// ManifestName is the file that makes a plugin of a directory.
const ManifestName = "plugin.yaml"

// Manifest is what a plugin's author says of it, and what it asks of its host.
type Manifest struct {
	// ID is the plugin's name: lower-case letters, digits, dots, dashes and
	// underscores, at most 64.
	ID string
	// Version is the author's own.
	Version string
	// Exec is the program, a path within the bundle with slashes.
	Exec string
	// Args are its arguments, without the program itself.
	Args []string
	// Env are the names of the variables of the host that it is handed, beside those
	// that every plugin gets. Those of agentd itself are none of them.
	Env []string
	// Protocol is the version of the protocol that it speaks.
	Protocol int
	// Memory bounds the data of each of its processes, in bytes; 0 does not.
	Memory int64
	// Config is one JSON object, which the plugin is handed as it is.
	Config json.RawMessage
	// own is the config that the manifest itself has.
	own yamlfile.Object
}

// manifestFile is how it is written.
type manifestFile struct {
	ID       string          `yaml:"id,required"`
	Version  string          `yaml:"version,required"`
	Exec     string          `yaml:"exec,required"`
	Args     []string        `yaml:"args"`
	Env      []string        `yaml:"env"`
	Protocol int             `yaml:"protocol,required,positive"`
	Memory   bytesize        `yaml:"memory"`
	Config   yamlfile.Object `yaml:"config"`
}

// ValidID reports whether a plugin may have that id.
func ValidID(id string) bool { return idPattern.MatchString(id) }

var (
	idPattern       = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// ownVariables begin with these: what is in them is agentd's own, secrets too, or
// part of the handshake.
var ownVariables = []string{"AGENTD_", "PLUGIN_"}

// readManifest reads the manifest at path; errors call it name. All that is wrong
// with it is in the error.
func readManifest(at, name string) (Manifest, error) {
	text, err := yamlfile.Read(at)
	if err != nil {
		return Manifest{}, err
	}
	problems := &yamlfile.Problems{}
	f := yamlfile.Parse(name, text, "a mapping with the keys id, version, exec and protocol", problems)
	if f == nil {
		return Manifest{}, problems.Err()
	}
	var file manifestFile
	if !f.Decode(f.Root, "the manifest", &file) {
		return Manifest{}, problems.Err()
	}
	file.check(f)
	m := Manifest{
		ID: file.ID, Version: file.Version, Exec: path.Clean(file.Exec), Args: file.Args, Env: file.Env,
		Protocol: file.Protocol, Memory: int64(file.Memory), Config: file.Config.JSON(), own: file.Config,
	}
	return m, problems.Err()
}

// check notes what a type alone does not tell.
func (m manifestFile) check(f *yamlfile.File) {
	at := func(key string) *yaml.Node { return yamlfile.Key(f.Root, key) }
	if !idPattern.MatchString(m.ID) {
		f.ErrorAt(at("id"), "id is %q; expected 1 to 64 lower-case letters, digits, dots, dashes and underscores", yamlfile.Cut(m.ID, yamlfile.MaxIDBytes))
	}
	if len(m.Version) > yamlfile.MaxIDBytes || strings.ContainsFunc(m.Version, func(r rune) bool { return !strconv.IsPrint(r) }) {
		f.ErrorAt(at("version"), "version is no text of at most %d printable bytes", yamlfile.MaxIDBytes)
	}
	if !filepath.IsLocal(filepath.FromSlash(m.Exec)) || path.Clean(m.Exec) == "." {
		f.ErrorAt(at("exec"), "exec is %q; expected a path within the plugin's directory", yamlfile.Cut(m.Exec, 100))
	}
	if m.Protocol != wire.ProtocolVersion {
		f.ErrorAt(at("protocol"), "protocol is %d; this agentd speaks %d", m.Protocol, wire.ProtocolVersion)
	}
	if slices.ContainsFunc(append(m.Args, m.Exec), func(s string) bool { return strings.ContainsRune(s, 0) }) {
		f.ErrorAt(f.Root, "exec and args cannot have a NUL")
	}
	for _, name := range m.Env {
		own := slices.ContainsFunc(ownVariables, func(prefix string) bool { return strings.HasPrefix(strings.ToUpper(name), prefix) })
		switch {
		case !variablePattern.MatchString(name):
			f.ErrorAt(at("env"), "env: %q is not the name of a variable", yamlfile.Cut(name, 100))
		case own:
			f.ErrorAt(at("env"), "env: %s is not for plugins", yamlfile.Cut(name, 100))
		}
	}
}

// bytesize is written as a number with a unit.
type bytesize int64

// minMemory is less than any plugin starts with.
const minMemory = 8 << 20

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *bytesize) UnmarshalText(text []byte) error {
	bad := fmt.Errorf("expected a size from %dMiB, such as 512MiB or 2GiB", minMemory>>20)
	for unit, size := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30} {
		number, ok := strings.CutSuffix(string(text), unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/size || n*size < minMemory {
			return bad
		}
		*b = bytesize(n * size)
		return nil
	}
	return bad
}
