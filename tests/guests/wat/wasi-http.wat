;; A guest that wants to make HTTP requests, which nobody granted.
(component
  (import "quarry:shard/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string) (field "retryable" bool)))
    (export "error" (type (eq $record)))
  ))
  (alias export $types "error" (type $error))
  (import "wasi:http/types@0.2.6" (instance $http_types
    (export "fields" (type (sub resource)))
  ))
  (import "wasi:http/outgoing-handler@0.2.6" (instance $http
    (export "handle" (func (param "url" string)))
  ))

  ;; `call` takes anything and replies with no bytes. Arguments land at 1024, and are forgotten after each call.
  (core module $code
    (memory (export "memory") 16)
    (global $next (mut i32) (i32.const 1024))
    (func (export "realloc") (param $old i32) (param $old_len i32) (param $align i32) (param $len i32) (result i32)
      (global.get $next)
      (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get $len) (i32.const 15)) (i32.const -8))))
    )
    (func (export "call") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
      (global.set $next (i32.const 1024))
      (i32.const 16)
    )
  )
  (core instance $code (instantiate $code))
  (alias core export $code "memory" (core memory $memory))
  (alias core export $code "realloc" (core func $realloc))
  (type $bytes (list u8))
  (type $key (option $bytes))
  (type $reply (result $bytes (error $error)))
  (type $call (func (param "method" string) (param "key" $key) (param "payload" $bytes) (result $reply)))
  (func $call (type $call)
    (canon lift (core func $code "call") (memory $memory) (realloc $realloc) string-encoding=utf8)
  )

  ;; An interface's functions may only name types that it exports, so this repeats them.
  (component $handler
    (type $record (record (field "code" string) (field "message" string) (field "retryable" bool)))
    (import "error" (type $error (eq $record)))
    (type $bytes (list u8))
    (type $key (option $bytes))
    (type $reply (result $bytes (error $error)))
    (import "call" (func $call (param "method" string) (param "key" $key) (param "payload" $bytes) (result $reply)))
    (export $exported_error "error" (type $error))
    (type $exported_reply (result $bytes (error $exported_error)))
    (export "call" (func $call)
      (func (param "method" string) (param "key" $key) (param "payload" $bytes) (result $exported_reply)))
  )
  (instance $handler (instantiate $handler (with "error" (type $error)) (with "call" (func $call))))
  (export "quarry:shard/handler@0.1.0" (instance $handler))
)
