//! Source texts below folders and in archives that the operator names.
//!
//! The page and the command show CPU time beside source lines, but the paths of files come from recordings, which any
//! agent can send. So a path consists of plain names and is looked up below the folders and inside the archives that
//! were named at the start, and links that lead out of a folder are refused.
//! Invariant: nothing outside of the named folders and archives is read, whatever a recording says.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use profile::source::{Gap, Part, ReadError, SharedSource, Source, Wanted};
use proto::framing::FramingError;
use zip::ZipArchive;

/// Folders of a project below which packages begin, tried in this order.
const ROOTS: [&str; 7] =
    ["", "src/main/java", "src/main/kotlin", "src/main/scala", "src/main/clojure", "src/test/java", "src"];

/// Largest source file that is shown, in bytes. The largest file of the JDK has 700 KB.
const MOST_BYTES: u64 = 4 << 20;

/// Maximum number of files of an archive; the JDK's has 16,000.
const MOST_FILES: usize = 1 << 20;

/// Folders and archives with source files. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SourcePath(Arc<[Place]>);

#[derive(Debug)]
enum Place {
    /// The folder, without links in its path.
    Folder(PathBuf),
    Archive(Mutex<Archive>),
}

#[derive(Debug)]
struct Archive {
    zip: ZipArchive<BufReader<File>>,
    /// Number of a file by its path, and by its path without the first folder: in the JDK's archive that is the module.
    files: HashMap<String, usize>,
}

impl SourcePath {
    /// Opens folders, and archives (`.jar` or `.zip`).
    ///
    /// # Errors
    /// If one cannot be read; the error names it.
    pub fn open(places: &[PathBuf]) -> io::Result<SourcePath> {
        let open = |path: &PathBuf| {
            let found = if path.is_dir() {
                path.canonicalize().map(Place::Folder)
            } else {
                Archive::open(path).map(|archive| Place::Archive(Mutex::new(archive)))
            };
            found.map_err(|error| {
                let expected = "name a folder, a .jar or a .zip with source files";
                io::Error::new(
                    error.kind(),
                    format!("cannot read sources from {}: {error}; {expected}", path.display()),
                )
            })
        };
        places.iter().map(open).collect::<io::Result<_>>().map(SourcePath)
    }

    /// Returns the text of a file by its package and name, such as `java/util/HashMap.java`, from the first place that
    /// has it.
    pub fn text(&self, file: &str) -> Option<String> {
        let is_plain = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
        if file.is_empty() || !is_plain || file.contains(['\\', '\0']) {
            return None;
        }
        self.0.iter().find_map(|place| match place {
            Place::Folder(folder) => text_below(folder, file),
            Place::Archive(archive) => archive.lock().text(file),
        })
    }

    /// Returns whether no place was named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn text_below(folder: &Path, file: &str) -> Option<String> {
    ROOTS.iter().find_map(|root| {
        // Without links, a path that leads out of the folder is seen.
        let path = folder.join(root).join(file).canonicalize().ok()?;
        let is_inside = path.starts_with(folder) && path.is_file();
        if is_inside { read(File::open(path).ok()?) } else { None }
    })
}

fn read(file: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let is_small = bytes.len() as u64 <= MOST_BYTES;
    is_small.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

impl Archive {
    fn open(path: &Path) -> io::Result<Archive> {
        let zip = ZipArchive::new(BufReader::new(File::open(path)?)).map_err(io::Error::other)?;
        let (mut files, mut whole) = (HashMap::new(), HashMap::new());
        for number in 0..zip.len().min(MOST_FILES) {
            let Some(Ok(name)) = zip.name_for_index(number) else { continue };
            if let Some((_, rest)) = name.split_once('/') {
                files.entry(rest.to_owned()).or_insert(number);
            }
            whole.insert(name.into_owned(), number);
        }
        // Whole paths come first.
        files.extend(whole);
        Ok(Archive { zip, files })
    }

    fn text(&mut self, file: &str) -> Option<String> {
        let number = *self.files.get(file)?;
        read(self.zip.by_index(number).ok()?)
    }
}

/// A source of samples with source texts.
pub struct WithSources {
    pub samples: SharedSource,
    pub texts: SourcePath,
}

impl Source for WithSources {
    fn parts(&self) -> Vec<Box<dyn Part + '_>> {
        self.samples.parts()
    }

    fn end_ns(&self) -> Option<u64> {
        self.samples.end_ns()
    }

    fn start_ns(&self) -> Option<u64> {
        self.samples.start_ns()
    }

    fn cut(&self) -> Option<FramingError> {
        self.samples.cut()
    }

    fn plausible_ns(&self, now_ns: u64) -> Range<u64> {
        self.samples.plausible_ns(now_ns)
    }

    fn source_text(&self, file: &str) -> Option<String> {
        self.texts.text(file)
    }

    fn usual_time(&self) -> Option<&'static str> {
        self.samples.usual_time()
    }

    fn read_part(&self, wanted: &Wanted<'_>) -> Result<Option<SharedSource>, ReadError> {
        let part = self.samples.read_part(wanted)?;
        Ok(part.map(|samples| Arc::new(WithSources { samples, texts: self.texts.clone() }) as SharedSource))
    }

    fn gaps(&self) -> Vec<Gap> {
        self.samples.gaps()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn files_are_found_in_folders_and_archives_and_nowhere_else() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let root = directory.path().join("project");
        let package = root.join("src/main/java/shop");
        std::fs::create_dir_all(&package).expect("folders");
        std::fs::write(package.join("Cart.java"), "class Cart {}\n").expect("file");
        std::fs::write(directory.path().join("secret.txt"), "secret").expect("file");
        std::os::unix::fs::symlink("../../../../../secret.txt", package.join("Link.java")).expect("link");
        assert_eq!(std::fs::read_to_string(package.join("Link.java")).ok().as_deref(), Some("secret"));
        let archive = directory.path().join("src.zip");
        let mut zip = zip::ZipWriter::new(File::create(&archive).expect("archive"));
        for (name, text) in
            [("java.base/java/util/Map.java", "map"), ("a/B.java", "whole"), ("x/a/B.java", "module")]
        {
            zip.start_file(name, zip::write::SimpleFileOptions::default()).expect("entry");
            zip.write_all(text.as_bytes()).expect("entry");
        }
        zip.finish().expect("archive");
        let sources = SourcePath::open(&[root, archive]).expect("both exist");
        let check = |file: &str, expected: Option<&str>| {
            assert_eq!(sources.text(file).as_deref(), expected, "{file}")
        };
        check("shop/Cart.java", Some("class Cart {}\n"));
        check("java/util/Map.java", Some("map"));
        check("a/B.java", Some("whole"));
        let secret = directory.path().join("secret.txt");
        for outside in [
            "../secret.txt",
            "shop/../../../../../secret.txt",
            secret.to_str().expect("path"),
            "shop/Link.java",
            "shop",
            "",
            "shop/Cart.java\0",
            "..\\secret.txt",
            "shop/Missing.java",
        ] {
            check(outside, None);
        }
        let missing = SourcePath::open(&[directory.path().join("missing")]).expect_err("there is none");
        assert!(missing.to_string().contains("name a folder"), "{missing}");
    }
}
