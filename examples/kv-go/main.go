// Values under keys. The same service as the one in Rust beside (../kv), over the same stored form.
//
//	method                   key                    payload                               reply
//	put                      where to store         the value                             the write's seq in decimal
//	get, also as a query     what to read           -                                     the value, or the error not-found
//	delete                   what to delete         -                                     the write's seq in decimal
//	scan, also as a query    any key of the shard   a scanRequest in JSON, or nothing     a line of JSON per entry
package main

import (
	quarry "quarry/guest"
	"quarry/guest/db"
	"quarry/guest/queries"
)

func init() {
	quarry.Handle(call)
	queries.Handle(query)
}

// Never runs: the host calls what init registered.
func main() {}

func call(c *quarry.Call) (quarry.Reply, error) {
	switch c.Method {
	case "put":
		key, err := c.RequiredKey()
		if err != nil {
			return quarry.Reply{}, err
		}
		return numbered(db.Put(key, c.Payload))
	case "delete":
		key, err := c.RequiredKey()
		if err != nil {
			return quarry.Reply{}, err
		}
		return numbered(db.Remove(key))
	}
	// What can be asked in a query can be asked in a call: then it waits its turn behind the writes.
	return query(c)
}

func query(c *quarry.Call) (quarry.Reply, error) {
	switch c.Method {
	case "get":
		key, err := c.RequiredKey()
		if err != nil {
			return quarry.Reply{}, err
		}
		return get(key)
	case "scan":
		return scan(c.Payload)
	}
	return quarry.Reply{}, c.UnknownMethod()
}

func numbered(seq db.Seq, err error) (quarry.Reply, error) {
	if err != nil {
		return quarry.Reply{}, err
	}
	return quarry.Text(uint64(seq)), nil
}

func get(key []byte) (quarry.Reply, error) {
	value, found, err := db.Get(key)
	if err != nil {
		return quarry.Reply{}, err
	}
	if !found {
		return quarry.Reply{}, quarry.Errorf("not-found", "there is no key `%s`", escaped(key))
	}
	return quarry.Bytes(value), nil
}
