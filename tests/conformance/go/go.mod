module conformance

go 1.24

require quarry/guest v0.0.0

replace quarry/guest => ../../../guest-sdk/go
