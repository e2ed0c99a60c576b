package guard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-2ca4966b/agentd/hooks/setting"
)

// DaytimeConfig is a part of the week, by the clock on a wall in a zone.
type DaytimeConfig struct {
	// Zone is a name of the IANA database such as Europe/Berlin, or UTC. It has
	// to be known on every machine.
	Zone string `json:"zone" yaml:"zone"`
	// Weekdays are some of mon, tue, wed, thu, fri, sat and sun; empty is all. A
	// time that goes over midnight belongs to the day on which it began.
	Weekdays []string `json:"weekdays,omitempty" yaml:"weekdays"`
	// From and To are times of the day such as 08:30; To is not in it any more.
	// A To that is not later than From is on the next day. Empty is the whole
	// day, in which case both are.
	From string `json:"from,omitempty" yaml:"from"`
	To   string `json:"to,omitempty" yaml:"to"`
}

// daytime is a [DaytimeConfig] that was found good.
type daytime struct {
	zone     *time.Location
	weekdays [7]bool
	// from and to are minutes of the day.
	from, to int
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (c DaytimeConfig) compile(guard, field string) (daytime, error) {
	zone, err := zoneNamed(c.Zone)
	if err != nil {
		return daytime{}, setting.Errorf(guard, field+".zone", "%v", err)
	}
	d := daytime{zone: zone}
	for i, name := range c.Weekdays {
		day := slices.Index(weekdays, name)
		if day < 0 {
			return daytime{}, setting.Errorf(guard, fmt.Sprintf("%s.weekdays[%d]", field, i), "%q is none of mon, tue, wed, thu, fri, sat, sun", name)
		}
		d.weekdays[day] = true
	}
	if len(c.Weekdays) == 0 {
		d.weekdays = [7]bool{true, true, true, true, true, true, true}
	}
	if c.From == "" && c.To == "" {
		return d, nil
	}
	for _, t := range []struct {
		name, text string
		minutes    *int
	}{{".from", c.From, &d.from}, {".to", c.To, &d.to}} {
		at, err := time.Parse("15:04", t.text)
		if err != nil || len(t.text) != len("15:04") {
			return daytime{}, setting.Errorf(guard, field+t.name, "%q is no time of the day such as 08:30", t.text)
		}
		*t.minutes = at.Hour()*60 + at.Minute()
	}
	return d, nil
}

// zoneNamed is the zone of that name. A name that means another zone on another
// machine is refused.
func zoneNamed(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("names no time zone; expected one such as Europe/Berlin or UTC")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %q on this machine; expected one such as Europe/Berlin or UTC", shorten(name, maxShown))
	}
	return zone, nil
}

// covers reports whether t is in it.
func (d daytime) covers(t time.Time) bool {
	t = t.In(d.zone)
	minute, day := t.Hour()*60+t.Minute(), t.Weekday()
	if d.from < d.to {
		return d.weekdays[day] && d.from <= minute && minute < d.to
	}
	// It goes over midnight; the whole day is from 0 to 0 of the next one.
	return d.weekdays[day] && minute >= d.from || d.weekdays[(day+6)%7] && minute < d.to
}

// clock is t as people in the zone read it.
func (d daytime) clock(t time.Time) string {
	return t.In(d.zone).Format("Monday 15:04") + " in " + strings.ReplaceAll(d.zone.String(), "_", " ")
}
