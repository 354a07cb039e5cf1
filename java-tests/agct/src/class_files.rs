//! The calls in the bytecodes of methods, as read from their class files.
//!
//! Problem: which of two walks is right must be decided by something that neither of them used.
//! Approach: JVMTI returns the bytecodes and the constant pool of any method as they were loaded. An `invoke` names the
//! method that may be on top of its frame; overriding changes the class, never name and descriptor.
//! Invariant: a method that was unloaded, or a pool that cannot be parsed, is [`Relation::Unknown`], never a
//! contradiction.
//! Sources: JVM specification, chapters 4.4 and 6.5; JVM Tool Interface, GetBytecodes and GetConstantPool.

use std::collections::HashMap;
use std::rc::Rc;

use jni::sys::{jclass, jint, jmethodID};

use tickwalk::jvmti::{Jvmti, JvmtiError};
use tickwalk::jvmti_call;

/// A method and its bytecodes.
#[derive(Debug)]
pub struct Code {
    pub name: String,
    descriptor: String,
    native: bool,
    bytecodes: Vec<u8>,
    pool: Rc<Pool>,
}

/// The relation of a frame to the next older one, its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The bytecode is a call of a method with this name and descriptor.
    Named,
    /// The bytecode is linked at run time (`invokedynamic`, `MethodHandle.invoke`, `linkToStatic`): it can call
    /// anything.
    Linked,
    /// The VM or native code is between the two, or calls without a bytecode (initialisers).
    Outside,
    /// The bytecode calls something else, or nothing.
    Contradicts,
    /// A method was unloaded, or its bytecode index is unknown.
    Unknown,
}

impl Relation {
    /// Returns whether the older frame is a possible caller.
    pub fn holds(self) -> bool {
        matches!(self, Self::Named | Self::Linked | Self::Outside)
    }
}

/// Methods read so far, by jmethodID.
pub struct ClassFiles {
    jvmti: Jvmti,
    methods: HashMap<u64, Option<Rc<Code>>>,
}

impl ClassFiles {
    /// Use it on a thread of the VM only.
    pub fn new(jvmti: Jvmti) -> Self {
        Self { jvmti, methods: HashMap::new() }
    }

    pub fn method(&mut self, id: u64) -> Option<Rc<Code>> {
        let jvmti = self.jvmti;
        self.methods.entry(id).or_insert_with(|| read_method(&jvmti, id).map(Rc::new)).clone()
    }

    /// Returns the relation of `callee` to `caller`, which is at bytecode `bci`.
    pub fn relation(&mut self, caller: u64, bci: i32, callee: u64) -> Relation {
        let (Some(caller), Some(callee)) = (self.method(caller), self.method(callee)) else {
            return Relation::Unknown;
        };
        relation(&caller, bci, &callee)
    }
}

fn relation(caller: &Code, bci: i32, callee: &Code) -> Relation {
    if caller.native || callee.name == "<clinit>" {
        return Relation::Outside;
    }
    let Some(at) = usize::try_from(bci).ok().filter(|at| *at < caller.bytecodes.len()) else {
        return Relation::Unknown;
    };
    match (caller.bytecodes.get(at), caller.bytecodes.get(at + 1..at + 3)) {
        // invokedynamic
        (Some(0xba), _) => Relation::Linked,
        // invokevirtual, invokespecial, invokestatic, invokeinterface
        (Some(0xb6..=0xb9), Some(&[high, low])) => {
            match caller.pool.called(u16::from_be_bytes([high, low])) {
                None => Relation::Unknown,
                Some((_, name, descriptor)) if name == callee.name && descriptor == callee.descriptor => {
                    Relation::Named
                }
                Some(("java/lang/invoke/MethodHandle" | "java/lang/invoke/VarHandle", ..)) => {
                    Relation::Linked
                }
                Some(_) => Relation::Contradicts,
            }
        }
        (None, _) => Relation::Unknown,
        _ => Relation::Contradicts,
    }
}

/// A constant pool, reduced to what calls need.
#[derive(Debug, Default)]
struct Pool {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Text(String),
    /// Class: its name.
    One(u16),
    /// A member: class, name and type. Name and type: name, descriptor.
    Two(u16, u16),
    Other,
}

impl Pool {
    /// Reads the entries of a class file's pool, which are numbered from 1.
    fn parse(bytes: &[u8]) -> Self {
        let mut entries = vec![Entry::Other];
        let mut rest = bytes;
        while let Some((entry, double, after)) = parse_entry(rest) {
            entries.push(entry);
            if double {
                entries.push(Entry::Other);
            }
            rest = after;
        }
        Self { entries }
    }

    fn text(&self, index: u16) -> Option<&str> {
        match self.entries.get(usize::from(index))? {
            Entry::Text(text) => Some(text),
            Entry::One(name) => self.text(*name),
            Entry::Two(..) | Entry::Other => None,
        }
    }

    /// Class, name and descriptor of a member.
    fn called(&self, index: u16) -> Option<(&str, &str, &str)> {
        let Entry::Two(class, name_and_type) = self.entries.get(usize::from(index))? else { return None };
        let Entry::Two(name, descriptor) = self.entries.get(usize::from(*name_and_type))? else {
            return None;
        };
        Some((self.text(*class)?, self.text(*name)?, self.text(*descriptor)?))
    }
}

/// Returns the entry at the start of `bytes`, whether it takes two indices, and the bytes after it.
fn parse_entry(bytes: &[u8]) -> Option<(Entry, bool, &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let word = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let (entry, length) = match tag {
        1 => {
            let length = usize::from(word(0)?);
            let text = rest.get(2..2 + length)?;
            (Entry::Text(String::from_utf8_lossy(text).into_owned()), 2 + length)
        }
        3 | 4 | 17 | 18 => (Entry::Other, 4),
        5 | 6 => (Entry::Other, 8),
        7 => (Entry::One(word(0)?), 2),
        8 | 16 | 19 | 20 => (Entry::Other, 2),
        9..=12 => (Entry::Two(word(0)?, word(2)?), 4),
        15 => (Entry::Other, 3),
        _ => return None,
    };
    Some((entry, matches!(tag, 5 | 6), rest.get(length..)?))
}

fn read_method(jvmti: &Jvmti, id: u64) -> Option<Code> {
    let method = id as jmethodID;
    if method.is_null() {
        return None;
    }
    let (mut name, mut descriptor) = (std::ptr::null_mut(), std::ptr::null_mut());
    jvmti_call!(
        jvmti,
        GetMethodName: fn(jmethodID, *mut *mut std::ffi::c_char, *mut *mut std::ffi::c_char, *mut *mut std::ffi::c_char),
        method, &raw mut name, &raw mut descriptor, std::ptr::null_mut()
    )
    .ok()?;
    // SAFETY: the VM returned this string.
    let name = unsafe { jvmti.take_string(name) };
    // SAFETY: as above.
    let descriptor = unsafe { jvmti.take_string(descriptor) };
    let mut native = 0;
    jvmti_call!(jvmti, IsMethodNative: fn(jmethodID, *mut u8), method, &raw mut native).ok()?;
    let native = native != 0;
    let (bytecodes, pool) =
        if native { (Vec::new(), Pool::default()) } else { read_code(jvmti, method).ok()? };
    Some(Code { name: name?, descriptor: descriptor?, native, bytecodes, pool: Rc::new(pool) })
}

fn read_code(jvmti: &Jvmti, method: jmethodID) -> Result<(Vec<u8>, Pool), JvmtiError> {
    let (mut length, mut bytes) = (0, std::ptr::null_mut());
    jvmti_call!(jvmti, GetBytecodes: fn(jmethodID, *mut jint, *mut *mut u8), method, &raw mut length, &raw mut bytes)?;
    // SAFETY: the VM allocated `length` bytes.
    let bytecodes = unsafe { jvmti.take_array(bytes, length) };
    let mut class: jclass = std::ptr::null_mut();
    jvmti_call!(jvmti, GetMethodDeclaringClass: fn(jmethodID, *mut jclass), method, &raw mut class)?;
    let (mut count, mut length, mut bytes) = (0, 0, std::ptr::null_mut());
    jvmti_call!(
        jvmti,
        GetConstantPool: fn(jclass, *mut jint, *mut jint, *mut *mut u8),
        class, &raw mut count, &raw mut length, &raw mut bytes
    )?;
    // SAFETY: as above.
    let pool = unsafe { jvmti.take_array(bytes, length) };
    Ok((bytecodes, Pool::parse(&pool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Caller.run`: an interface call of `Callee.go()V`, then a return; and the entries it names.
    fn caller() -> Code {
        let mut pool = Vec::new();
        for text in ["Callee", "go", "()V", "java/lang/invoke/MethodHandle", "invokeBasic"] {
            pool.push(1);
            pool.extend_from_slice(&u16::try_from(text.len()).expect("short").to_be_bytes());
            pool.extend_from_slice(text.as_bytes());
        }
        pool.extend_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0, 1]); // 6: a long, which takes 7 as well
        pool.extend_from_slice(&[7, 0, 1, 12, 0, 2, 0, 3, 11, 0, 8, 0, 9]); // 8 to 10: Callee.go()V
        pool.extend_from_slice(&[7, 0, 4, 12, 0, 5, 0, 3, 10, 0, 11, 0, 12]); // 11 to 13: MethodHandle.invokeBasic()V
        let bytecodes = vec![0xb9, 0, 10, 1, 0, 0xb1, 0xb6, 0, 13, 0xba, 0, 1];
        Code { pool: Rc::new(Pool::parse(&pool)), bytecodes, ..method("run") }
    }

    fn method(name: &str) -> Code {
        let (name, descriptor) = (name.to_owned(), "()V".to_owned());
        Code { name, descriptor, native: false, bytecodes: Vec::new(), pool: Rc::default() }
    }

    #[test]
    fn a_call_matches_its_name_only() {
        let caller = caller();
        let relation = |bci, callee: &Code| super::relation(&caller, bci, callee);
        assert_eq!(relation(0, &method("go")), Relation::Named);
        assert_eq!(relation(0, &method("stay")), Relation::Contradicts);
        assert_eq!(
            relation(0, &Code { descriptor: "()I".to_owned(), ..method("go") }),
            Relation::Contradicts
        );
        assert_eq!(relation(5, &method("go")), Relation::Contradicts, "a return calls nothing");
        assert_eq!(relation(6, &method("anything")), Relation::Linked);
        assert_eq!(relation(9, &method("anything")), Relation::Linked);
        assert_eq!(relation(5, &method("<clinit>")), Relation::Outside);
        assert_eq!(relation(-1, &method("go")), Relation::Unknown);
        assert_eq!(relation(99, &method("go")), Relation::Unknown);
    }
}
