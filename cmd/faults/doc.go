// Command faults kills agentd at random under load and looks for anything that
// was lost, repeated or left behind. docs/durability.md says what it looks for;
// `make faults` runs it.
package main
