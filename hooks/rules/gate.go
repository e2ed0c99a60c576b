package rules

import (
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/seed-2ca4966b/agentd/hooks"
)

// variable is what an expression may look at.
type variable struct {
	name string
	typ  *cel.Type
}

// gate is what rules may look at and do at one of the gates.
type gate struct {
	name hooks.Gate
	vars []variable
	// actions are the keys of what a rule may do here.
	actions []string
	// changes are the keys of a transform.
	changes []string
	// call says that the gate is about a tool call.
	call bool

	// compiling guards the environment: the library's checker writes to it when
	// an expression is wrong.
	compiling sync.Mutex
	env       *cel.Env
}

var (
	text    = types.StringType
	integer = types.IntType
	texts   = types.NewListType(types.StringType)
	talk    = types.NewListType(messageType)

	always   = []variable{{"tenant", text}, {"agent", text}, {"session", text}, {"now", types.TimestampType}}
	ofRun    = join(always, variable{"run", text})
	ofTurn   = join(ofRun, variable{"turn", integer})
	ofTry    = join(ofTurn, variable{"attempt", integer})
	ofCall   = []variable{{"call.id", text}, {"call.name", text}, {"call.arguments", types.DynType}}
	ofModel  = variable{"model", text}
	ofHeader = variable{"headers", texts}
)

func join(some []variable, more ...variable) []variable { return append(slices.Clip(some), more...) }

// The actions of a rule.
const (
	doBlock     = "block"
	doAsk       = "ask"
	doTerminate = "terminate"
	doTransform = "transform"
	doRedact    = "redact"
	doHandled   = "handled"
	doWithhold  = "withhold"
)

var actions = []string{doBlock, doAsk, doTerminate, doTransform, doRedact, doHandled, doWithhold}

// gates are all there are, in the order of a run.
var gates = []*gate{
	{
		name: hooks.GateBeforeInput, vars: join(always, variable{"input", text}, variable{"text", text}),
		actions: []string{doBlock, doHandled, doTransform, doRedact}, changes: []string{"text"},
	},
	{
		name:    hooks.GateBeforeRunStart,
		vars:    join(ofRun, variable{"system", text}, variable{"messages", talk}, variable{"hidden", talk}, variable{"tools", texts}),
		actions: []string{doBlock, doTransform}, changes: []string{"system", "append", "tools"},
	},
	{
		name: hooks.GateTransformContext, vars: join(ofTry, variable{"system", text}, variable{"messages", talk}),
		actions: []string{doBlock, doTransform, doRedact}, changes: []string{"append"},
	},
	{
		name: hooks.GateBeforeProviderHeaders, vars: join(ofTry, ofModel, ofHeader),
		actions: []string{doBlock, doTransform}, changes: []string{"headers"},
	},
	{
		name: hooks.GateBeforeProviderRequest, vars: join(ofTry, ofModel, variable{"body", types.DynType}),
		actions: []string{doBlock, doTransform}, changes: []string{"body"},
	},
	{
		name: hooks.GateAfterProviderResponse, vars: join(ofTry, ofModel, variable{"status", integer}, ofHeader),
		actions: []string{doBlock},
	},
	{
		name: hooks.GateBeforeToolCall, vars: join(join(ofTurn, ofCall...), variable{"revision", integer}),
		actions: []string{doBlock, doAsk, doTerminate, doTransform}, changes: []string{"arguments"}, call: true,
	},
	{
		name: hooks.GateBeforeExecute, vars: join(ofTry, ofCall...),
		actions: []string{doBlock}, call: true,
	},
	{
		name:    hooks.GateAfterToolCall,
		vars:    join(join(ofTry, ofCall...), variable{"content", text}, variable{"content_json", types.DynType}, variable{"is_error", types.BoolType}),
		actions: []string{doWithhold, doTransform, doRedact}, changes: []string{"content", "is_error"}, call: true,
	},
}

func gateNamed(name string) *gate {
	i := slices.IndexFunc(gates, func(g *gate) bool { return string(g.name) == name })
	if i < 0 {
		return nil
	}
	return gates[i]
}

func gateNames() []string {
	var names []string
	for _, g := range gates {
		names = append(names, string(g.name))
	}
	return names
}

// variables lists what expressions at the gate may look at, for errors.
func (g *gate) variables() string {
	var names []string
	for _, v := range g.vars {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}
