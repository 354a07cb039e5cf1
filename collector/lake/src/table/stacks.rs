//! The table of stacks: the frames of each, leaf first, under an id that is made of its content.
//!
//! Invariant: two rows have the same id if and only if they are equal (apart from collisions of 64-bit hashes),
//! whichever writer made them. So a row may be in many files, and readers take any of them.

use std::collections::BTreeMap;
use std::io::Write;

use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedFileReader;
use profile::dictionary::Dictionary;
use profile::dictionary::frame_parts::{FrameParts, kind_text};
use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::columns::{Column, Group, Lists, Values, create, write_group};
use super::texts::Texts;

/// Rows of a group; a stack is a hundred times larger than a sample.
const ROWS_A_GROUP: usize = 1 << 13;

const SCHEMA: &str = "message stacks {
    required int64 stack_id;
    required binary stop (STRING);
    required group frames (LIST) {
        repeated group list {
            required group element {
                required binary name (STRING);
                required binary class (STRING);
                required binary method (STRING);
                required binary file (STRING);
                required int32 line;
                required binary kind (STRING);
                required binary signature (STRING);
                required binary library (STRING);
                required int32 bci;
                required int32 modifiers;
            }
        }
    }
}";

/// Path of the fields of a frame.
const FRAME: &str = "frames.list.element";

/// A frame; texts are numbers in [`Stacks::texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Text for display.
    pub name: u32,
    /// Class with dots; empty for other than Java frames.
    pub class: u32,
    /// Method of a Java frame, else the symbol.
    pub method: u32,
    /// Source file with its package as a path.
    pub file: u32,
    /// Line, 0 if unknown.
    pub line: i32,
    /// Kind of the code.
    pub kind: u32,
    /// Descriptor of a Java method.
    pub signature: u32,
    /// Library of native code: path, a space, and its build id.
    pub library: u32,
    /// Byte code index, -1 if there is none.
    pub bci: i32,
    /// Access flags of the method times two, plus one if Java hides its frames.
    pub modifiers: i32,
}

/// Stop reason and frames of a stack; numbers in [`Stacks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Text of the reason.
    pub stop: u32,
    /// Frames, leaf first.
    pub frames: Vec<u32>,
}

/// Stacks by id, with their texts and frames.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Texts of frames and stacks.
    pub texts: Texts,
    /// Frames by number.
    pub frames: Vec<Frame>,
    numbers: FxHashMap<Frame, u32>,
    /// Hashes of frames, by number.
    hashes: Vec<u64>,
    /// Stacks by id.
    pub rows: BTreeMap<i64, Stack>,
}

impl Stacks {
    fn frame(&mut self, frame: Frame) -> u32 {
        if let Some(&number) = self.numbers.get(&frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.hashes.push(self.hash_of(&frame));
        self.frames.push(frame);
        self.numbers.insert(frame, number);
        number
    }

    /// Returns a hash of all columns of a frame.
    fn hash_of(&self, frame: &Frame) -> u64 {
        let mut content = Vec::new();
        let Frame { name, class, method, file, line, kind, signature, library, bci, modifiers } = *frame;
        for text in [name, class, method, file, kind, signature, library] {
            content.extend_from_slice(self.texts.get(text).data());
            // Separates texts: this byte never occurs in UTF-8.
            content.push(0xff);
        }
        [line, bci, modifiers].iter().for_each(|number| content.extend_from_slice(&number.to_le_bytes()));
        xxh3_64(&content)
    }

    /// Adds a stack of `dictionary` and returns its id.
    pub fn add(&mut self, dictionary: &Dictionary, stack: u32, known: &mut FxHashMap<u32, u32>) -> i64 {
        let mut content = Vec::new();
        let mut frames = Vec::new();
        for frame in dictionary.path(stack) {
            let number = match known.get(&frame) {
                Some(&number) => number,
                None => {
                    let frame_row = self.of_parts(&FrameParts::of(dictionary, frame));
                    let number = self.frame(frame_row);
                    known.insert(frame, number);
                    number
                }
            };
            content.extend_from_slice(&self.hashes[number as usize].to_le_bytes());
            frames.push(number);
        }
        let stop = dictionary.string(dictionary.stack(stack).stop);
        content.extend_from_slice(stop.as_bytes());
        let id = xxh3_64(&content).cast_signed();
        let stop = self.texts.number(stop.as_bytes());
        self.rows.entry(id).or_insert(Stack { stop, frames });
        id
    }

    fn of_parts(&mut self, parts: &FrameParts) -> Frame {
        let library = match parts.build_id.as_str() {
            "" => parts.library.clone(),
            build_id => format!("{} {build_id}", parts.library),
        };
        let mut text = |text: &str| self.texts.number(text.as_bytes());
        Frame {
            name: text(&parts.text),
            class: text(&parts.class.replace('/', ".")),
            method: text(&parts.method),
            file: text(&parts.file),
            line: parts.line.cast_signed(),
            kind: text(&kind_text(parts.kind)),
            signature: text(&parts.signature),
            library: text(&library),
            bci: parts.bci,
            modifiers: (parts.modifiers << 1 | u32::from(parts.hidden)).cast_signed(),
        }
    }

    /// Writes the rows that `is_wanted` accepts to `out`, by id.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, is_wanted: impl Fn(i64) -> bool, out: impl Write + Send) -> Result<(), ParquetError> {
        let mut file = create(out, SCHEMA)?;
        let rows: Vec<(&i64, &Stack)> = self.rows.iter().filter(|(id, _)| is_wanted(**id)).collect();
        for rows in rows.chunks(ROWS_A_GROUP) {
            write_group(&mut file, &self.columns(rows))?;
        }
        file.close()?;
        Ok(())
    }

    /// Returns the columns of the schema.
    fn columns(&self, rows: &[(&i64, &Stack)]) -> Vec<Column> {
        let mut lists = Lists::default();
        rows.iter().for_each(|(_, stack)| lists.push(stack.frames.len()));
        let all =
            || rows.iter().flat_map(|(_, stack)| &stack.frames).map(|&frame| &self.frames[frame as usize]);
        let of_frames = |values| Column { values, lists: Some(lists.clone()) };
        let text = |of: fn(&Frame) -> u32| {
            of_frames(Values::Text(all().map(|frame| self.texts.get(of(frame))).collect()))
        };
        let int = |of: fn(&Frame) -> i32| of_frames(Values::Int(all().map(of).collect()));
        vec![
            Values::Long(rows.iter().map(|(id, _)| **id).collect()).into(),
            Values::Text(rows.iter().map(|(_, stack)| self.texts.get(stack.stop)).collect()).into(),
            text(|frame| frame.name),
            text(|frame| frame.class),
            text(|frame| frame.method),
            text(|frame| frame.file),
            int(|frame| frame.line),
            text(|frame| frame.kind),
            text(|frame| frame.signature),
            text(|frame| frame.library),
            int(|frame| frame.bci),
            int(|frame| frame.modifiers),
        ]
    }

    /// Adds the rows of a file.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn read<R: ChunkReader + 'static>(
        &mut self,
        file: &SerializedFileReader<R>,
    ) -> Result<(), ParquetError> {
        for group in Group::all(file) {
            self.read_group(&group?, None)?;
        }
        Ok(())
    }

    /// Adds the rows of `other`.
    pub fn append(&mut self, other: &Stacks) {
        let texts: Vec<u32> = other.texts.all().map(|text| self.texts.number(text)).collect();
        let text = |number: u32| texts[number as usize];
        let mut numbers = Vec::with_capacity(other.frames.len());
        for frame in &other.frames {
            numbers.push(self.frame(Frame {
                name: text(frame.name),
                class: text(frame.class),
                method: text(frame.method),
                file: text(frame.file),
                kind: text(frame.kind),
                signature: text(frame.signature),
                library: text(frame.library),
                ..*frame
            }));
        }
        for (&id, stack) in &other.rows {
            let frames = stack.frames.iter().map(|&frame| numbers[frame as usize]);
            self.rows.entry(id).or_insert_with(|| Stack { stop: text(stack.stop), frames: frames.collect() });
        }
    }

    /// Adds the rows of a row group, those in `wanted` if that is given.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn read_group(
        &mut self,
        group: &Group<'_>,
        wanted: Option<&FxHashSet<i64>>,
    ) -> Result<(), ParquetError> {
        let ids = group.longs("stack_id")?;
        let is_new =
            |id: &i64| !self.rows.contains_key(id) && wanted.is_none_or(|wanted| wanted.contains(id));
        if !ids.iter().any(is_new) {
            return Ok(());
        }
        let stops = group.texts("stop")?;
        let path = |field: &str| format!("{FRAME}.{field}");
        let (names, lists) = group.text_lists(&path("name"))?;
        let mut frames = vec![Frame::default(); names.len()];
        let texts = &mut self.texts;
        for (frame, name) in frames.iter_mut().zip(names) {
            frame.name = texts.number(name.data());
        }
        let mut text = |field: &str, set: fn(&mut Frame, u32)| {
            let (values, _) = group.text_lists(&path(field))?;
            frames.iter_mut().zip(values).for_each(|(frame, value)| set(frame, texts.number(value.data())));
            Ok::<_, ParquetError>(())
        };
        text("class", |frame, value| frame.class = value)?;
        text("method", |frame, value| frame.method = value)?;
        text("file", |frame, value| frame.file = value)?;
        text("kind", |frame, value| frame.kind = value)?;
        text("signature", |frame, value| frame.signature = value)?;
        text("library", |frame, value| frame.library = value)?;
        let mut int = |field: &str, set: fn(&mut Frame, i32)| {
            let (values, _) = group.int_lists(&path(field))?;
            frames.iter_mut().zip(values).for_each(|(frame, value)| set(frame, value));
            Ok::<_, ParquetError>(())
        };
        int("line", |frame, value| frame.line = value)?;
        int("bci", |frame, value| frame.bci = value)?;
        int("modifiers", |frame, value| frame.modifiers = value)?;
        let mut frames = frames.into_iter();
        for ((id, stop), len) in ids.into_iter().zip(stops).zip(lists.lens()) {
            let own: Vec<Frame> = frames.by_ref().take(len).collect();
            if wanted.is_some_and(|wanted| !wanted.contains(&id)) || self.rows.contains_key(&id) {
                continue;
            }
            let frames = own.into_iter().map(|frame| self.frame(frame)).collect();
            let stop = self.texts.number(stop.data());
            self.rows.insert(id, Stack { stop, frames });
        }
        Ok(())
    }
}
