package daemons_test

import (
	"fmt"
	"time"

	"github.com/kopf-go/kopf/daemons"
)

func ExampleParseCron() {
	nightly, err := daemons.ParseCron("CRON_TZ=Europe/Berlin 30 3 * * mon-fri")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for range 2 {
		at = nightly.Next(at)
		fmt.Println(at.Format(time.RFC1123Z))
	}
	_, err = daemons.ParseCron("30 25 * * *")
	fmt.Println(err)
	// Output:
	// Mon, 30 Mar 2026 03:30:00 +0200
	// Tue, 31 Mar 2026 03:30:00 +0200
	// cron schedule "30 25 * * *": hour: end of range (25) above maximum (23): 25
}
