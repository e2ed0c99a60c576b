// Command bench measures what agentd costs, as ratios to what the same machine
// and the same Postgres can do: absolute times say more about the machine than
// about agentd. Everything that is compared is measured in turns in one run,
// on a private Postgres whose commits reach the disk.
//
// docs/performance.md says what each figure is and what limits it.
package main
