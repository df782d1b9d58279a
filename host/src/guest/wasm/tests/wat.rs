//! The smallest guests, in the text format: each does one thing.

/// A guest to be.
pub(in crate::guest::wasm) struct Wat {
    /// Imports of the component, as text.
    pub(in crate::guest::wasm) imports: &'static str,
    /// Pages of memory that it begins with.
    pub(in crate::guest::wasm) pages: u32,
    /// What the core module has beside.
    pub(in crate::guest::wasm) core: &'static str,
    /// What `call` does: leaves the address of its result. At 16 is the reply of no bytes.
    pub(in crate::guest::wasm) body: &'static str,
    /// The type of the record `error`.
    pub(in crate::guest::wasm) error: &'static str,
    /// The name of the exported interface.
    pub(in crate::guest::wasm) export: &'static str,
    /// The name of its function.
    pub(in crate::guest::wasm) function: &'static str,
}

impl Default for Wat {
    fn default() -> Self {
        Self {
            imports: "",
            pages: 16,
            core: "",
            body: "(i32.const 16)",
            error: r#"(record (field "code" string) (field "message" string) (field "retryable" bool))"#,
            export: "quarry:shard/handler@0.1.0",
            function: "call",
        }
    }
}

impl Wat {
    /// A guest whose `call` does this.
    pub(in crate::guest::wasm) fn call(body: &'static str) -> Vec<u8> {
        Self { body, ..Self::default() }.build()
    }

    /// The component's bytes.
    pub(in crate::guest::wasm) fn build(&self) -> Vec<u8> {
        let Self { imports, pages, core, body, error, export, function } = self;
        // An interface's functions may only name types that it exports, so the inner component repeats them.
        let text = format!(
            r#"(component
  (import "quarry:shard/types@0.1.0" (instance $types (type $record {error}) (export "error" (type (eq $record)))))
  (alias export $types "error" (type $error))
  {imports}
  (core module $code
    (memory (export "memory") {pages})
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    {core}
    (func $call (export "call") (param $method i32) (param $method_len i32) (param i32 i32 i32) (param $payload i32) (param $payload_len i32)
      (result i32) {body}))
  (core instance $code (instantiate $code))
  (alias core export $code "memory" (core memory $memory))
  (alias core export $code "realloc" (core func $realloc))
  (type $bytes (list u8))
  (type $key (option $bytes))
  (type $reply (result $bytes (error $error)))
  (type $call (func (param "method" string) (param "key" $key) (param "payload" $bytes) (result $reply)))
  (func $call (type $call) (canon lift (core func $code "call") (memory $memory) (realloc $realloc) string-encoding=utf8))
  (component $handler
    (type $record {error})
    (import "error" (type $error (eq $record)))
    (type $bytes (list u8))
    (type $key (option $bytes))
    (type $reply (result $bytes (error $error)))
    (import "call" (func $call (param "method" string) (param "key" $key) (param "payload" $bytes) (result $reply)))
    (export $exported_error "error" (type $error))
    (type $exported_reply (result $bytes (error $exported_error)))
    (export "{function}" (func $call) (func (param "method" string) (param "key" $key) (param "payload" $bytes) (result $exported_reply))))
  (instance $handler (instantiate $handler (with "error" (type $error)) (with "call" (func $call))))
  (export "{export}" (instance $handler)))"#
        );
        wat::parse_str(text).expect("the text is a component")
    }
}
