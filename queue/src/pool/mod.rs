//! Slabs for copies of stacks: a [`plan`] of their sizes, the [`slabs`] with a [`slab_header`] each, a [`free_list`]
//! for each class, and [`stats`].

mod free_list;
pub(crate) mod plan;
pub(crate) mod prefetch;
pub(crate) mod slab_header;
pub(crate) mod slabs;
pub(crate) mod stats;
