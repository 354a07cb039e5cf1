//! The seam to the CPU: registers, instructions and frame shapes; the rest of the crate knows none of these.
//!
//! Each supported CPU is one folder. This file selects it: the CPU of the target, or aarch64 in the package
//! `stackwalk-aarch64`, which replays stacks of that CPU on any machine; `rules` holds the types that the folders and
//! the walker share. A folder for another CPU offers the names below; where its code has no such case, a function
//! returns `None`, 0 or `false`, and a constant is small but not 0. All functions are pure: code bytes, registers or
//! stack words in, a verdict out. They allocate nothing and panic on no input.
//!
//! | name | meaning |
//! |---|---|
//! | [`Registers`] | the captured registers beside pc, sp and fp, declared by `words!`; a method for each role that HotSpot gives one |
//! | [`PreservedRegisters`] | those that a C function restores, beside sp and fp |
//! | `FRAME_RECORD_BYTES` | saved fp and return address at the high end of a frame |
//! | `RETURN_ADDRESS_BYTES` | the return address, at the high end of the record |
//! | `INTERPRETER_SENDER_SP`, `_METHOD`, `_LOCALS`, `_BCP` | fixed slots of an interpreter frame, in words from fp |
//! | `INTERPRETER_FIXED_BYTES` | bytes from fp to the lowest of them |
//! | `MAX_PUSHED_WORDS` | most words that code keeps below its complete frame or above the return address |
//! | [`RETURNS_BY_REGISTER`], [`return_address`]`(word, stack)` | where a call leaves the return address, and the address without a signature |
//! | `ENTRY_WRAPPER` | slot of the `JavaCallWrapper` where the tables lack it |
//! | `ANCHOR_SLACK` | most bytes between a Java frame's sp and that of its anchor |
//! | `DWARF_SAVED`, `DWARF_STACK_POINTER`, `DWARF_ROW_RULES`, `dwarf_values`, `dwarf_caller` | registers by their numbers in unwind tables |
//! | `caller_by(rule, frame, size, registers, word)` | the caller by an [`Unwind`] rule |
//! | `return_address_of_call(sp)` | where a call out of a frame with this sp keeps its return address |
//! | `CODE_BEFORE`, `CODE_AFTER` | bytes of [`Around`] |
//! | `OSR_PROLOGUE_BYTES` | bytes after an on-stack-replacement entry that may be prologue |
//! | `prologue(around)`, `epilogue(around, native, offset)` | frame state in the code that builds or removes a frame |
//! | `taken_at(code, pc)` | what entry code has put on the stack, where a method has several entries |
//! | `keeps_frame_size(before, size)`, `kept_frame_size(size, word)` | code whose frames keep their size, because some are extended; that size |
//! | `state_in_body(around, ahead, native, offset)` | frame state in all other compiled code; `ahead` has `BODY_AHEAD` bytes |
//! | `state_at_call(around, ahead)` | frame state at the return address of a call of VM code |
//! | `stub_states(around, size)`, `stub_exit(after)` | the same of stubs: rules to try in order, and a certain one |
//! | `call_before(before, at)` | the target of the call that precedes a return address; `before` has `CALL_BYTES` |
//! | `trampoline_target(code)` | where code leads that stands between a call and its target; it has `TRAMPOLINE_BYTES` |
//! | `METHODS_JUMP_TO_ROUTINES` | true if the interpreter's entry of an intrinsic method jumps to a routine of `StubRoutines` |
//! | `CALLING_STUB_RULES` | rules for a stub that calls C code |
//! | `words_below(before)` | words that code without fixed frame has pushed |
//! | `DIRECT_CALL_BYTES` | length of a call between functions of one library |
//! | `ASSEMBLER_ROUTINE_BYTES` | longest routine of libjvm without unwind table |
//! | `static_call_stub_offset(around)` | distance from the start of a static call stub |
//! | `is_given_up(code, pc)` | an interrupt gives the instruction at a pc up while it waits; `None` if code within `NEAR_JUMP_BEFORE` and `_AFTER` bytes jumps there, or none reaches it otherwise |
//! | `has_far_jump(code, start, pc)` | the same for code at any distance; a jump has `FAR_JUMP_BYTES` |
//! | `leads_to(from, to, code)` | control can get from one instruction to another without returning; `None` if not known |
//! | `far_jumps(code, start)` | the targets of the jumps in code |
//! | `searches_string(around)`, `keeps_length(code, pc)` | inlined string code that keeps words below the complete frame |
//! | `reserved_words(before)` | stack space that a stub without a frame has reserved |
//! | `entry_frame(code, returns, pc, wrapper)` | frame state in the call stub |
//! | `has_saved_sender_sp(before)`, `keeps_entry_sp(before)` | progress of an adapter |
//! | `sp_without_return_address(before, after, sp, sender_sp)` | the caller's sp while an adapter has its return address in a register only |
//! | `allocating_adapter(before)` | frame state in an adapter that calls the VM to allocate objects for fields |
//! | `linker_pops_argument(before, after)` | a method handle linker holds its return address in a register |
//! | `entry_barrier_callers(sp, fp, word)` | frames that the stub of the nmethod entry barrier may have |
//! | `patching_adapter(sp, preserved)` | the way to the caller of an adapter that calls the VM |
//! | `enters_method(ahead)`, `interpreter_exit(after)`, `is_interpreter_return_entry(after)` | the interpreter enters a method, leaves it, or restores its caller |
//! | `allocates_returned_object(before)` | the interpreter is allocating an object whose fields were returned; `before` has `ALLOCATION_REACH` bytes |
//! | `frameless_return(after)` | bytes above sp on the return address, behind a call in an interpreter's entry that builds no frame; `after` has `FRAMELESS_RETURN_BYTES` |
//! | `poll_frame`, `poll_exit`, `is_loop_poll_blob` | frame state in a SafepointBlob |
//! | `handler_place`, `has_popped_throwing_pc` | progress of the stubs that look up an exception handler |
//! | `forward_exception_place(around)` | where the routine that forwards an exception keeps its return address; `None` where it has no rule |
//! | `deopt_place`, `deopt_handler_pushed_bytes`, `is_deopt_call` | progress of a deoptimisation |
//! | `is_before_reservation`, `thawed_frame` | progress of thawing frames of a virtual thread |
//! | `upcall_frame(code)`, `upcall_state(offset, after)` | the frame of an upcall stub; `code` has `UPCALL_START` bytes |
//! | `is_signal_return(after)`, `is_in_signal_return(before, after)` | code that ends a signal handler; `after` has `SIGNAL_RETURN_BYTES` |
//! | `saved_registers(context, word)` | the registers that a signal has interrupted |
//! | `registers_at_handler_entry(frame, registers, word)` | the same where the handler has not begun |
//! | `return_barrier(code)`, `BARRIER_START` | the return barrier in the code of the continuation stubs |

#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
mod aarch64;
mod rules;
pub(crate) mod words;
#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
mod x86_64;
#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
pub(crate) use aarch64::*;
#[cfg(any(target_arch = "aarch64", stackwalk_aarch64))]
pub use aarch64::{
    DWARF_ROW_RULES, DWARF_SAVED, DWARF_STACK_POINTER, FRAME_RECORD_BYTES, PreservedRegisters,
    RETURNS_BY_REGISTER, Registers, return_address,
};
pub(crate) use rules::{
    Around, CallTarget, DeoptPlace, ForwardExceptionPlace, FrameRegisters, HandlerPlace, PollFrame, Unwind,
    UpcallFrame,
};
#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
pub(crate) use x86_64::*;
#[cfg(all(target_arch = "x86_64", not(stackwalk_aarch64)))]
pub use x86_64::{
    DWARF_ROW_RULES, DWARF_SAVED, DWARF_STACK_POINTER, FRAME_RECORD_BYTES, PreservedRegisters,
    RETURNS_BY_REGISTER, Registers, return_address,
};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("stackwalk supports x86-64 and aarch64; another CPU needs a folder in src/cpu");
