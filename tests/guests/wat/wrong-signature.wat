;; A component whose handler has our name and another signature.
(component
  (core module $code
    (func (export "call") (param i32) (result i32)
      (local.get 0)
    )
  )
  (core instance $code (instantiate $code))
  (func $call (param "number" u32) (result u32)
    (canon lift (core func $code "call"))
  )
  (instance $handler (export "call" (func $call)))
  (export "quarry:shard/handler@0.1.0" (instance $handler))
)
