"""Writers of reports as HTML, PDF, JUnit, terminal text and live metrics.

Other writers describe plans and patterns.
"""
