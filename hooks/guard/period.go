package guard

import (
	"sort"
	"time"
)

// Period is a time by the calendar.
type Period string

// The periods. The words are stored.
const (
	PeriodHour Period = "hour"
	PeriodDay  Period = "day"
	// PeriodWeek begins on Monday.
	PeriodWeek  Period = "week"
	PeriodMonth Period = "month"
)

var periods = map[Period]bool{PeriodHour: true, PeriodDay: true, PeriodWeek: true, PeriodMonth: true}

// around is the period that now is in, from its first moment to the first of
// the next one, by the calendar of a zone.
func (p Period) around(now time.Time, zone *time.Location) (start, end time.Time) {
	t := now.In(zone)
	y, m, d := t.Date()
	switch p {
	case PeriodHour:
		// Of the clock on the wall, whose hours begin at a half where zones do.
		start = t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
		return start, start.Add(time.Hour)
	case PeriodWeek:
		d -= (int(t.Weekday()) + 6) % 7
		return midnight(y, m, d, zone), midnight(y, m, d+7, zone)
	case PeriodMonth:
		return midnight(y, m, 1, zone), midnight(y, m+1, 1, zone)
	default:
		return midnight(y, m, d, zone), midnight(y, m, d+1, zone)
	}
}

// midnight is the first moment of a day, which is not 00:00 where the clocks go
// forward at midnight, and the first of two where they go back.
func midnight(y int, m time.Month, d int, zone *time.Location) time.Time {
	noon := time.Date(y, m, d, 12, 0, 0, 0, zone)
	y, m, d = noon.Date()
	const before = 15 * 3600 // seconds, in which the day has begun
	n := sort.Search(before, func(i int) bool {
		ty, tm, td := noon.Add(time.Duration(i-before) * time.Second).Date()
		return ty == y && tm == m && td == d
	})
	return noon.Add(time.Duration(n-before) * time.Second)
}
