//! Classes that are loaded, their methods, and tags of their mirrors.

use jni::sys::{jclass, jint, jlong, jmethodID, jobject};

use super::{Jvmti, JvmtiError};

/// A reference to a class, valid as long as the JNI frame it was made in.
#[derive(Debug, Clone, Copy)]
pub struct ClassRef(jclass);

impl ClassRef {
    /// Wraps the reference that an event passes.
    ///
    /// # Safety
    /// `class` is a valid reference for the calling thread.
    pub unsafe fn new(class: jclass) -> Self {
        Self(class)
    }
}

impl Jvmti {
    /// Returns all classes that are loaded, each by a local reference.
    ///
    /// # Errors
    /// As GetLoadedClasses.
    pub fn loaded_classes(&self) -> Result<Vec<ClassRef>, JvmtiError> {
        let (mut count, mut classes) = (0, std::ptr::null_mut());
        jvmti_call!(self, GetLoadedClasses: fn(*mut jint, *mut *mut jclass), &raw mut count, &raw mut classes)?;
        // SAFETY: the VM allocated `count` references at `classes`.
        let classes = unsafe { self.take_array(classes, count) };
        Ok(classes.into_iter().map(ClassRef).collect())
    }

    /// Returns the ids of a class's methods; the VM makes those that it has not made yet.
    ///
    /// # Errors
    /// As GetClassMethods, which refuses classes that are not prepared.
    pub fn method_ids(&self, class: ClassRef) -> Result<Vec<jmethodID>, JvmtiError> {
        let (mut count, mut ids) = (0, std::ptr::null_mut());
        jvmti_call!(self, GetClassMethods: fn(jclass, *mut jint, *mut *mut jmethodID), class.0, &raw mut count, &raw mut ids)?;
        // SAFETY: the VM allocated `count` ids at `ids`.
        Ok(unsafe { self.take_array(ids, count) })
    }

    /// Returns the tag of a class's mirror, 0 for none.
    ///
    /// # Errors
    /// As GetTag.
    pub fn tag(&self, class: ClassRef) -> Result<jlong, JvmtiError> {
        let mut tag = 0;
        jvmti_call!(self, GetTag: fn(jobject, *mut jlong), class.0, &raw mut tag)?;
        Ok(tag)
    }

    /// Sets the tag of a class's mirror.
    ///
    /// # Errors
    /// As SetTag.
    pub fn set_tag(&self, class: ClassRef, tag: jlong) -> Result<(), JvmtiError> {
        jvmti_call!(self, SetTag: fn(jobject, jlong), class.0, tag)
    }
}
