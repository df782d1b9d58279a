// Package options is the optional export that checks options before anything runs. No database is open then.
package options

import "quarry/guest/internal/guest"

// Handle registers the check, in an init function. `options` is a JSON object. The error is shown to whoever gave them.
func Handle(validate func(options string) error) {
	guest.Register(&guest.OnOptions, guest.OnOptions != nil, "options", validate)
}
