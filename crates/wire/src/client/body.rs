//! The body of a response: sized, or in chunks.

use std::io::{self, BufRead, ErrorKind, Read};

/// A chunk-size line longer than this is not one.
const SIZE_LINE_BYTES_MAX: u64 = 64;

#[derive(Debug)]
pub(super) struct Body<R> {
    reader: R,
    /// Bytes left of the body, or of the current chunk.
    left: u64,
    chunked: bool,
    ended: bool,
}

impl<R: BufRead> Body<R> {
    pub(super) fn sized(reader: R, length: u64) -> Self {
        Self {
            reader,
            left: length,
            chunked: false,
            ended: false,
        }
    }

    pub(super) fn chunked(reader: R) -> Self {
        Self {
            reader,
            left: 0,
            chunked: true,
            ended: false,
        }
    }

    /// The underlying reader, to change its time-out.
    pub(super) fn inner(&self) -> &R {
        &self.reader
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut line = self.size_line()?;
        if line.is_empty() {
            // The line break that ends the chunk before.
            line = self.size_line()?;
        }
        let digits = line.split(';').next().unwrap_or_default().trim();
        self.left = u64::from_str_radix(digits, 16)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "bad chunk size"))?;
        self.ended = self.left == 0;
        Ok(())
    }

    fn size_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.reader)
            .take(SIZE_LINE_BYTES_MAX)
            .read_line(&mut line)?;
        if line.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.chunked && !self.ended {
            self.next_chunk()?;
        }
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let got = self.reader.read(&mut buffer[..most])?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &mut Body<&[u8]>) -> io::Result<String> {
        let mut text = String::new();
        body.read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn chunks_are_joined() {
        let mut body = Body::chunked(&b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"[..]);
        assert_eq!(read(&mut body).unwrap(), "abc0123456789");
    }

    #[test]
    fn a_cut_body_is_an_error_not_a_short_answer() {
        assert!(read(&mut Body::sized(&b"abc"[..], 4)).is_err());
        assert!(read(&mut Body::chunked(&b"3\r\nabc\r\n"[..])).is_err());
        assert!(read(&mut Body::chunked(&b"5\r\nabc"[..])).is_err());
        assert!(read(&mut Body::chunked(&b"zz\r\nabc"[..])).is_err());
    }
}
