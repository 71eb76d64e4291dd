"""What other programs take: findings as SARIF and JUnit XML, and a plugin of pytest."""
