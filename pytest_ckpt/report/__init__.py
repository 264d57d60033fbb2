"""Writers of reports as HTML, PDF, JUnit, terminal text and live metrics, and writers of texts on plans and
patterns.
"""
