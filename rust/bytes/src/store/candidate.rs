//! A file that was opened and looked at, but not yet trusted: finds out what it is and parses it.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::checkpoint::OpenOptions;
use super::error::{Problem, StoreError};
use super::file::{ReadAt, open_regular};
use super::header::{self, Header};
use super::shard::{PREFIX, Shard};
use super::{layout, sniff};

/// The longest header that is read, the limit of the reference implementation.
pub(crate) const HEADER_CAP: u64 = 100_000_000;
/// Bytes read at first, so that nearly every header takes a single read.
const HEAD: u64 = 1 << 20;

/// A file that was opened and looked at, but not parsed: a `safetensors` file or an index. Or bytes
/// in memory that are to be such a file.
pub(crate) struct Candidate<S = File> {
    path: PathBuf,
    file: S,
    len: u64,
    head: Vec<u8>,
}

impl Candidate {
    /// Opens a regular file, whatever its name, and reads its beginning.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let (file, len) = open_regular(path)?;
        Self::over(path, file, len)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is JSON rather than `safetensors`: an index, if anything. Eight characters of
    /// text, read as a header length, exceed the cap by far; so the two cannot be confused.
    pub(crate) fn is_json(&self) -> bool {
        self.head.trim_ascii_start().starts_with(b"{")
            && self.header_len().is_none_or(|len| len > HEADER_CAP)
    }

    /// The whole contents, for an index.
    pub(crate) fn text(&mut self) -> Result<&[u8], StoreError> {
        if self.len > HEADER_CAP {
            return Err(Problem::new(format!(
                "it is a JSON text of {} bytes, too long for the index of a checkpoint",
                self.len
            ))
            .at(&self.path));
        }
        self.extend_head(self.len)?;
        Ok(&self.head)
    }

    /// Parses and checks the header. The tensors come out sorted by where they lie.
    pub(crate) fn parse(mut self, options: OpenOptions) -> Result<(Shard, Header), StoreError> {
        let (header, header_len) = self.header(options)?;
        let shard = Shard::new(self.path, self.file, self.len, header_len);
        Ok((shard, header))
    }
}

impl<S: ReadAt> Candidate<S> {
    /// Reads the beginning of `file`, which has `len` bytes and goes by `path` in messages.
    pub(crate) fn over(path: &Path, file: S, len: u64) -> Result<Self, StoreError> {
        let mut candidate = Self {
            path: path.to_owned(),
            file,
            len,
            head: Vec::new(),
        };
        candidate.extend_head(len.min(HEAD))?;
        Ok(candidate)
    }

    /// The header, parsed and checked, and its length. The tensors are sorted by where they lie.
    pub(crate) fn header(&mut self, options: OpenOptions) -> Result<(Header, u64), StoreError> {
        let header_len = self.checked_header_len()?;
        self.extend_head(PREFIX + header_len)?;
        let text = self
            .head
            .get(PREFIX as usize..(PREFIX + header_len) as usize);
        let text = text.unwrap_or_default();
        let (header, data_len) = header::parse(text, options.strict_fields)
            .and_then(|mut header| {
                let data_len = layout::check(&mut header.tensors)?;
                Ok((header, data_len))
            })
            .map_err(|problem| self.explain_unless_header(problem, text).at(&self.path))?;
        self.check_data_len(PREFIX + header_len, data_len, options.allow_trailing)?;
        Ok((header, header_len))
    }

    /// The first eight bytes as a number, if there are so many.
    fn header_len(&self) -> Option<u64> {
        self.head
            .first_chunk()
            .map(|&bytes| u64::from_le_bytes(bytes))
    }

    fn checked_header_len(&self) -> Result<u64, StoreError> {
        let text = match self.header_len() {
            None => format!("it has {} bytes, too few for a safetensors file", self.len),
            Some(len) if len > HEADER_CAP => {
                format!("its header would have {len} bytes, and {HEADER_CAP} are allowed")
            }
            Some(len) if len > self.len - PREFIX => format!(
                "its header would have {len} bytes, but the file has only {}",
                self.len
            ),
            Some(len) => return Ok(len),
        };
        let problem = sniff::explain(&self.head).unwrap_or_else(|| {
            Problem::new(text)
                .remedy("The file is cut short or is not a safetensors file; download it again")
        });
        Err(problem.at(&self.path))
    }

    /// Another format can have a mark that reads as a small header length; then what follows is no
    /// header, and the mark says more than the parser's complaint.
    fn explain_unless_header(&self, problem: Problem, text: &[u8]) -> Problem {
        if text.trim_ascii_start().starts_with(b"{") {
            return problem;
        }
        sniff::explain(&self.head).unwrap_or(problem)
    }

    fn check_data_len(
        &self,
        data_start: u64,
        data_len: u64,
        allow_trailing: bool,
    ) -> Result<(), StoreError> {
        let present = self.len - data_start;
        let problem = match present.checked_sub(data_len) {
            Some(0) => return Ok(()),
            Some(_) if allow_trailing => return Ok(()),
            Some(extra) => Problem::new(format!(
                "{extra} bytes follow the last tensor: the header describes a file of {} bytes, and \
                 this one has {}",
                data_start + data_len,
                self.len
            ))
            .remedy("Download or copy the file again; if you know where they come from, cut them off"),
            None => Problem::new(format!(
                "it is cut short: the header describes {data_len} bytes of data, and {present} are \
                 there"
            ))
            .remedy("Download or copy the file again"),
        };
        Err(problem.at(&self.path))
    }

    /// Reads on until the first `len` bytes, which the file must have, are there.
    fn extend_head(&mut self, len: u64) -> Result<(), StoreError> {
        let have = self.head.len();
        let Ok(len) = usize::try_from(len) else {
            return Ok(());
        };
        if have >= len {
            return Ok(());
        }
        self.head.resize(len, 0);
        self.file
            .read_exact_at(&mut self.head[have..], have as u64)
            .map_err(|error| StoreError::io(&self.path, error))
    }
}
