package quarry

import (
	"context"
	"log/slog"
	"slices"

	"quarry/guest/internal/host"
)

// Logger writes to the guest's log on the host, with the attributes as fields. What is printed (fmt.Println, log.Print) goes there too.
var Logger = slog.New(handler{})

type handler struct {
	fields []host.Pair
	group  string
}

func level(of slog.Level) uint8 {
	switch {
	case of < slog.LevelDebug:
		return 0
	case of < slog.LevelInfo:
		return 1
	case of < slog.LevelWarn:
		return 2
	case of < slog.LevelError:
		return 3
	}
	return 4
}

func (handler) Enabled(_ context.Context, of slog.Level) bool { return host.Logs(level(of)) }

func (h handler) Handle(_ context.Context, record slog.Record) error {
	fields := slices.Clone(h.fields)
	record.Attrs(func(attr slog.Attr) bool {
		fields = flattened(fields, h.group, attr)
		return true
	})
	host.Log(level(record.Level), record.Message, fields)
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := slices.Clone(h.fields)
	for _, attr := range attrs {
		fields = flattened(fields, h.group, attr)
	}
	return handler{fields, h.group}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.fields, h.group + name + "."} }

func flattened(fields []host.Pair, group string, attr slog.Attr) []host.Pair {
	value := attr.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		return append(fields, host.Pair{Name: group + attr.Key, Value: value.String()})
	}
	if attr.Key != "" {
		group += attr.Key + "."
	}
	for _, inner := range value.Group() {
		fields = flattened(fields, group, inner)
	}
	return fields
}
