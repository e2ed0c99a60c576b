package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/seed-2ca4966b/agentd/hooks/pattern"
	"github.com/seed-2ca4966b/agentd/hooks/yamlfile"
)

// registry and adapter are those of all expressions. They are never changed.
var (
	registry = types.NewEmptyRegistry()
	adapter  = types.Adapter(registry)
)

// environment is that of all expressions at the gate. It needs g.compiling.
func (g *gate) environment() (_ *cel.Env, err error) {
	if g.env == nil {
		g.env, err = newEnvironment(g)
	}
	return g.env, err
}

func newEnvironment(g *gate) (*cel.Env, error) {
	known, err := types.NewRegistry()
	if err != nil {
		return nil, fmt.Errorf("CEL types: %w", err)
	}
	opts := []cel.EnvOption{
		cel.StdLib(),
		// The version is fixed so that rules mean the same with a later library.
		ext.Strings(ext.StringsVersion(5)),
		cel.OptionalTypes(cel.OptionalTypesVersion(2)),
		cel.CustomTypeProvider(provider{known}),
		cel.CustomTypeAdapter(adapter),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableErrorOnBadPresenceTest(true),
		cel.DefaultUTCTimeZone(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ParserExpressionSizeLimit(MaxExpressionBytes),
		cel.ParserRecursionLimit(maxExpressionNesting),
		cel.ParserErrorRecoveryLimit(5),
		cel.ExpressionNodeLimit(maxExpressionNodes),
		cel.ASTValidators(
			cel.ValidateComprehensionNestingLimit(maxComprehensions),
			cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(),
		),
	}
	for _, v := range g.vars {
		opts = append(opts, cel.Variable(v.name, v.typ))
	}
	env, err := cel.NewCustomEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("CEL at %s: %w", g.name, err)
	}
	return env, nil
}

// program is one expression, ready to be asked by many goroutines.
type program struct {
	source string
	ast    *cel.Ast
	run    cel.Program
	// impure says that the time of asking is looked at, or the files of the
	// machine's time zones.
	impure bool
	// where tells the place in the file of a character of source.
	where func(offset int) yamlfile.Place
	file  string
}

// complaint is what is wrong with an expression, at a character of it.
type complaint struct {
	offset int
	text   string
}

// compile makes a program, or says what is wrong with the expression.
func compile(g *gate, source string) (*program, []complaint) {
	if len(source) > MaxExpressionBytes {
		return nil, []complaint{{0, fmt.Sprintf("the expression has %d bytes; at most %d are taken", len(source), MaxExpressionBytes)}}
	}
	g.compiling.Lock()
	defer g.compiling.Unlock()
	env, err := g.environment()
	if err != nil {
		return nil, []complaint{{0, err.Error()}}
	}
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		var out []complaint
		for _, e := range issues.Errors() {
			out = append(out, complaint{offsetOf(source, e.Location), explain(g, e)})
		}
		return nil, out
	}
	p := &program{source: source, ast: checked, impure: impure(checked)}
	if bad := p.calls(); bad != nil {
		return nil, bad
	}
	if bad := p.estimate(env); bad != nil {
		return nil, bad
	}
	p.run, err = env.Program(checked,
		cel.EvalOptions(cel.OptOptimize),
		cel.CostLimit(maxCost),
		cel.MemoryTracking(
			types.MemoryTrackerSizeCalculator(types.NewSizeCalculator(
				types.SizeCalculatorMaxDepth(2*maxJSONNesting), types.SizeCalculatorMaxTraversal(maxValues))),
			types.MemoryTrackerSampleInterval(16)),
		cel.MemoryLimit(maxValues),
		cel.InterruptCheckFrequency(checkEvery))
	if err != nil {
		return nil, []complaint{{0, err.Error()}}
	}
	return p, nil
}

// offsetOf is the character that a place in an expression is, from 0.
func offsetOf(source string, at common.Location) int {
	if at == nil || at.Line() < 1 {
		return 0
	}
	lines := strings.SplitAfter(source, "\n")
	offset := 0
	for i := 0; i < at.Line()-1 && i < len(lines); i++ {
		offset += len([]rune(lines[i]))
	}
	return offset + max(at.Column(), 0)
}

// explain says what was expected where CEL says only what is wrong.
func explain(g *gate, e *common.Error) string {
	text := strings.TrimSuffix(yamlfile.Cut(e.Message, 300), " (in container '')")
	if strings.HasPrefix(text, "undeclared reference") && !strings.Contains(text, "overload") {
		return text + "; " + string(g.name) + " has " + g.variables()
	}
	return text
}

// impure reports whether what an expression comes to depends on more than what it
// is asked about: on now, or a name of its own that is the same, or on a time
// zone, which is read from a file.
func impure(a *cel.Ast) bool {
	for _, r := range a.NativeRep().ReferenceMap() {
		if strings.TrimPrefix(r.Name, ".") == "now" || slices.ContainsFunc(r.OverloadIDs, ofZone) {
			return true
		}
	}
	return false
}

func ofZone(overload string) bool {
	return strings.HasPrefix(overload, "timestamp_to_") && strings.HasSuffix(overload, "_tz")
}

// unbounded are functions of the strings library that are not offered. One call
// of them can make a text of terabytes out of two that are not large, before
// cost and memory are looked at.
var unbounded = map[string]bool{"replace": true, "join": true, "format": true, "split": true}

// calls refuses functions that are not offered, and regular expressions that are
// not there when the rule is loaded, or are too large: one that a model or a user
// had written would be compiled with what they chose.
func (p *program) calls() []complaint {
	var out []complaint
	rep := p.ast.NativeRep()
	ast.PostOrderVisit(rep.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		if f := e.AsCall().FunctionName(); f != "matches" {
			if unbounded[f] {
				at := offsetOf(p.source, rep.SourceInfo().GetStartLocation(e.ID()))
				out = append(out, complaint{at, f + " is not offered: what it makes can be far larger than what it is given"})
			}
			return
		}
		args := e.AsCall().Args()
		last := args[len(args)-1]
		at := offsetOf(p.source, rep.SourceInfo().GetStartLocation(last.ID()))
		if last.Kind() != ast.LiteralKind {
			out = append(out, complaint{at, "the pattern of matches has to be written out, as a text in quotes"})
			return
		}
		literal, _ := last.AsLiteral().Value().(string)
		if _, err := pattern.Compile(literal); err != nil {
			out = append(out, complaint{at, err.Error()})
		}
	}))
	return out
}

// estimate refuses what would not come to an end within the limits with input of
// a usual size.
func (p *program) estimate(env *cel.Env) []complaint {
	c, err := env.EstimateCost(p.ast, sizes{})
	if err != nil {
		return []complaint{{0, err.Error()}}
	}
	if c.Max > maxCost {
		return []complaint{{0, fmt.Sprintf(
			"the expression may cost %d with texts of %d bytes and lists of %d; at most %d is taken: make it shorter, or nest fewer loops",
			c.Max, usualText, usualList, maxCost)}}
	}
	return nil
}

// sizes are those for which a cost is estimated.
type sizes struct{}

// EstimateCallCost implements [cost.Estimator]: calls cost what they do.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// EstimateSize implements [cost.Estimator].
func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if n.ComputedSize() != nil {
		return nil
	}
	var most uint64
	switch n.Type().Kind() {
	case types.StringKind, types.BytesKind:
		most = usualText
	case types.ListKind:
		most = usualList
	case types.MapKind, types.StructKind:
		most = usualMap
	case types.DynKind:
		most = usualJSON
	default:
		return nil
	}
	s := cost.RangedSizeEstimate(0, most)
	return &s
}

// eval asks the program.
func (p *program) eval(ctx context.Context, v *vars) (ref.Val, error) {
	out, _, err := p.run.ContextEval(ctx, v)
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the expression was stopped: %w", context.Cause(ctx))
	}
	at := p.where(0)
	var e *types.Err
	if errors.As(err, &e) && e.NodeID() > 0 {
		at = p.where(offsetOf(p.source, p.ast.NativeRep().SourceInfo().GetStartLocation(e.NodeID())))
	}
	text := yamlfile.Cut(err.Error(), 500)
	switch {
	case strings.Contains(text, "no such key"), strings.Contains(text, "no such field"):
		text += "; where it may be missing, ask with has(...) first"
	case strings.Contains(text, "no such overload"):
		text += ": a value there is of another type; where it may be, ask with type(...) == int, string or such first"
	}
	return nil, fmt.Errorf("%s:%d:%d: %s", p.file, at.Line, at.Column, text)
}
