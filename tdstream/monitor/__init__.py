"""Progress bars, measurements of data waits, and step counts."""
