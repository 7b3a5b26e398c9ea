;; What the pool asks of the kernels, and nothing more. A program is (operation, sum):
;;   0  every worker adds its number plus one to the sum    1  the last worker traps
;;   2  the last worker never comes back                    3  as 0, but slowly
;; Control words at 1024: arrivals, generation, chunk counter, spin limit, abort.
(module
  (import "env" "memory" (memory 1 65535 shared))
  (global $sp (export "__stack_pointer") (mut i32) (i32.const 0))

  (func (export "abi") (result i32) (i32.const 1))

  (func (export "repack") (param $format i32) (param $source i32) (param $target i32)
                          (param $first_row i32) (param $rows i32) (param $columns i32)
    (memory.copy
      (i32.add (local.get $target) (i32.mul (local.get $first_row) (local.get $columns)))
      (local.get $source)
      (i32.mul (local.get $rows) (local.get $columns))))

  ;; 1 when the host wants everybody to leave
  (func $barrier (param $workers i32) (result i32)
    (local $generation i32)
    (local.set $generation (i32.atomic.load (i32.const 1028)))
    (if (i32.eq (i32.add (i32.atomic.rmw.add (i32.const 1024) (i32.const 1)) (i32.const 1)) (local.get $workers))
      (then
        (i32.atomic.store (i32.const 1024) (i32.const 0))
        (drop (i32.atomic.rmw.add (i32.const 1028) (i32.const 1)))
        (drop (memory.atomic.notify (i32.const 1028) (i32.const -1))))
      (else
        (loop $wait
          (if (i32.atomic.load (i32.const 1040)) (then (return (i32.const 1))))
          (drop (memory.atomic.wait32 (i32.const 1028) (local.get $generation) (i64.const -1)))
          (br_if $wait (i32.eq (i32.atomic.load (i32.const 1028)) (local.get $generation))))))
    (i32.atomic.load (i32.const 1040)))

  (func (export "run") (param $program i32) (param $worker i32) (param $workers i32) (result i32)
    (local $operation i32) (local $left i32)
    (if (call $barrier (local.get $workers)) (then (return (i32.const -2))))
    (local.set $operation (i32.load (local.get $program)))
    (if (i32.eq (local.get $worker) (i32.sub (local.get $workers) (i32.const 1)))
      (then
        (if (i32.eq (local.get $operation) (i32.const 1)) (then (unreachable)))
        (if (i32.eq (local.get $operation) (i32.const 2)) (then (loop $forever (br $forever))))))
    (if (i32.eq (local.get $operation) (i32.const 3))
      (then
        (local.set $left (i32.const 20000000))
        (loop $slowly
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (drop (i32.atomic.load (local.get $program)))
          (br_if $slowly (local.get $left)))))
    (drop (i32.atomic.rmw.add
      (i32.add (local.get $program) (i32.const 4)) (i32.add (local.get $worker) (i32.const 1))))
    (if (call $barrier (local.get $workers)) (then (return (i32.const -2))))
    (i32.load (i32.add (local.get $program) (i32.const 4)))))
