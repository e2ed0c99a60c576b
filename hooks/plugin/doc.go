// Package plugin is for programs that agentd starts and asks: plugins. A plugin is
// a main package that hands its hooks and tools to [Serve]:
//
//	func main() {
//		if err := plugin.Serve(plugin.Config{
//			ID: "policy", Version: "1",
//			Hooks: hooks.Hooks{BeforeToolCall: decide},
//		}); err != nil {
//			fmt.Fprintln(os.Stderr, err)
//			os.Exit(1)
//		}
//	}
//
// The functions are those that an author would write for a loop in his own process:
// see package hooks. What a plugin is asked, and what it answers, goes over
// agentd.plugin.v1, whose messages are in package pluginv1; docs/plugins.md is for
// authors.
package plugin
